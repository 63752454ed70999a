//! `rdmascope completions SHELL`: verbs and flags, and names that some of them take: fields, findings, and interfaces.
//! The shell looks up interfaces when they are needed, so that a package can contain the scripts.

use crate::cli::{Cli, Color, Completions, registry};
use crate::stdout::Out;
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use rdmascope_analyzer::finding::Rule;
use std::process::ExitCode;

pub(super) fn run(args: &Completions, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    write(args.shell, &mut out.buffer);
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Stands for the names of interfaces while a script is made.
const INTERFACES: &str = "RDMASCOPE-INTERFACES";

fn write(shell: Shell, out: &mut Vec<u8>) {
    let mut command = named();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "rdmascope", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match shell {
        Shell::Bash => script.replace(INTERFACES, "$(ls /sys/class/net 2>/dev/null)"),
        // a list of words is evaluated there
        Shell::Zsh => script.replace(INTERFACES, "$(ls /sys/class/net 2>/dev/null)"),
        Shell::Fish => script.replace(&format!("\"{INTERFACES}\\t''\""), "\"(ls /sys/class/net 2>/dev/null)\""),
        // other shells get the interfaces of this machine
        _ => script.replace(INTERFACES, &interfaces().join(" ")),
    };
    out.extend_from_slice(script.as_bytes());
    if shell != Shell::Fish {
        return;
    }
    // of fish's script, clap leaves out the values of arguments that have no flag
    for verb in command.get_subcommands() {
        for argument in verb.get_positionals() {
            let names: Vec<String> = argument.get_possible_values().iter().map(|v| v.get_name().to_owned()).collect();
            if !names.is_empty() {
                let line = format!(
                    "complete -c rdmascope -n \"__fish_seen_subcommand_from {}\" -f -a \"{}\"\n",
                    verb.get_name(),
                    names.join(" ")
                );
                out.extend_from_slice(line.as_bytes());
            }
        }
    }
}

/// The command line, with known names for arguments that take any text.
fn named() -> Command {
    let findings: Vec<&'static str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    let fields: Vec<&'static str> = registry().all().iter().map(|field| field.name).collect();
    let mut command = Cli::command();
    for (verb, argument, names) in
        [("explain", "finding", &findings), ("fields", "prefix", &fields), ("dissect", "fields", &fields)]
    {
        command = command.mut_subcommand(verb, |c| {
            c.mut_arg(argument, |a| a.value_parser(PossibleValuesParser::new(names.clone())))
        });
    }
    for verb in ["analyze", "capture", "tui"] {
        command = command.mut_subcommand(verb, |c| {
            c.mut_arg("interfaces", |a| a.value_parser(PossibleValuesParser::new([INTERFACES])))
        });
    }
    command
}

/// Interfaces of this machine.
fn interfaces() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_know_fields_findings_and_interfaces() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut out = Vec::new();
            write(shell, &mut out);
            let script = String::from_utf8(out).expect("text");
            for name in ["SMBD-CREDIT-LAST", "smb2.msg_id", "rdmascope.connection"] {
                assert!(script.contains(name), "{shell}: {name}");
            }
            assert!(script.contains("ls /sys/class/net") && !script.contains(INTERFACES), "{shell}");
        }
    }
}
