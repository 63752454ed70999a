//! `rdmascope man DIR`: one page for the command and one for each verb. The text after the options in a verb's help
//! becomes one section each: examples, exit status, notes.

use crate::cli::{Cli, Man};
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &Man) -> Result<ExitCode> {
    let dir = args.dir.display();
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{dir}: cannot be made"))?;
    pages(&command(), &args.dir).with_context(|| format!("{dir}: the manual pages cannot be written"))?;
    Ok(ExitCode::SUCCESS)
}

fn command() -> clap::Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// The page of a command, and those of its verbs.
fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages(verb, dir)?;
    }
    let page = Page::new(command.clone());
    std::fs::write(dir.join(page.get_filename()), text(&page, command)?)
}

fn text(page: &Page, command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut out)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    sections(&help).to_writer(&mut out)?;
    Ok(out)
}

/// Paragraphs under their headings; indented lines as they are.
fn sections(help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut before = "";
    for paragraph in help.split("\n\n") {
        let (heading, text) = match paragraph.split_once(':') {
            Some(("Examples", rest)) => ("EXAMPLES", rest),
            Some(("Exit status", rest)) => ("EXIT STATUS", rest),
            _ => ("NOTES", paragraph),
        };
        if heading == before {
            roff.control("PP", []);
        } else {
            roff.control("SH", [heading]);
        }
        before = heading;
        let mut is_list = false;
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with("  ") != is_list {
                is_list = !is_list;
                roff.control(if is_list { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line.trim())]);
        }
        if is_list {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stay_as_they_are() {
        let command = command();
        let verb = command.find_subcommand("dissect").unwrap();
        let page = String::from_utf8(text(&Page::new(verb.clone()), verb).unwrap()).unwrap();
        let examples = page.split(".SH EXAMPLES\n").nth(1).unwrap();
        assert!(examples.starts_with(".nf\nrdmascope dissect trace.pcapng \\-\\-limit 20\n"), "{examples}");
        assert!(examples.contains("\n.fi\n.SH NOTES\nFilters are Wireshark"), "{examples}");
        for verb in command.get_subcommands() {
            let page = String::from_utf8(text(&Page::new(verb.clone()), verb).unwrap()).unwrap();
            assert!(page.contains(".SH EXAMPLES\n.nf\n") && page.contains("\n.SH OPTIONS\n"), "{}", verb.get_name());
            assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count(), "{}", verb.get_name());
        }
    }

    #[test]
    fn every_verb_has_a_page() {
        let dir = std::env::temp_dir().join(format!("rdmascope-man-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        pages(&command(), &dir).unwrap();
        let names: Vec<String> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        std::fs::remove_dir_all(&dir).unwrap();
        for verb in ["", "-analyze", "-export", "-export-wireshark", "-man"] {
            assert!(names.contains(&format!("rdmascope{verb}.1")), "{verb}: {names:?}");
        }
        assert!(names.iter().all(|name| !name.contains("help")), "{names:?}");
    }
}
