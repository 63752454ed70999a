//! rdmascope as a source of captures in Wireshark (its extcap interface): Wireshark runs this program with
//! `--extcap-…`, lists the interfaces that it prints, shows the options in its dialog, and reads pcapng from a pipe
//! that it names.
//!
//! | interface | what |
//! | --- | --- |
//! | `rdmascope-NAME` | a network interface, or the verbs sniffer of an RDMA card, as in `rdmascope capture -i NAME` |
//! | `rdmascope-running-PID` | the growing file, or series of files, of a `rdmascope capture -w` that runs on this machine |
//! | `rdmascope-follow` | any capture that is still being written, here or on another machine's file system, or a named pipe |
//!
//! Each of them can take mirrored frames out of their tunnels ([`rdmascope_capture::decapsulate`]); each session of a
//! mirror then is an interface of its own, `frame.interface_name` in Wireshark.
//!
//! `rdmascope export wireshark --install` puts a link to this program into Wireshark's folder.

use crate::cli::Cli;
use crate::live::Signals;
use crate::live::attach::{How, attach, running};
use anyhow::{Context, Result, bail};
use clap::Parser;
use rdmascope_capture::live::{Filter, list, rdma};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Before the name of an interface: Wireshark's own interfaces have the bare names.
const PREFIX: &str = "rdmascope-";
const FOLLOW: &str = "rdmascope-follow";
/// Before the process of a capture that runs.
const RUNNING: &str = "rdmascope-running-";
/// Path of the list of processes on Linux.
const PROCESSES: &str = "/proc";

/// True if Wireshark runs the program: with an `--extcap-` argument, or under the name of its link.
pub(crate) fn is_asked(arguments: &[OsString]) -> bool {
    let text = |a: &OsString| a.to_string_lossy().into_owned();
    let by_name = arguments.first().is_some_and(|a| Path::new(a).file_stem().is_some_and(|n| n == "rdmascope-extcap"));
    by_name || arguments.iter().skip(1).any(|a| text(a).starts_with("--extcap-"))
}

/// The arguments of Wireshark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Arguments {
    interfaces: bool,
    interface: Option<String>,
    dlts: bool,
    config: bool,
    capture: bool,
    fifo: Option<PathBuf>,
    filter: Option<String>,
    /// Options of the dialog, for `rdmascope capture`.
    options: Vec<String>,
    path: Option<PathBuf>,
    from_now: bool,
    decapsulate: bool,
}

impl Arguments {
    /// Parses options with their value after `=` or as the next argument. Ignores unknown options, which a later
    /// Wireshark may add.
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut asked = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            let mut value =
                || value.clone().or_else(|| arguments.next()).with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--extcap-interfaces" => asked.interfaces = true,
                "--extcap-interface" => asked.interface = Some(value()?),
                "--extcap-dlts" => asked.dlts = true,
                "--extcap-config" => asked.config = true,
                "--capture" => asked.capture = true,
                "--fifo" => asked.fifo = Some(value()?.into()),
                "--extcap-capture-filter" => asked.filter = Some(value()?).filter(|f| !f.is_empty()),
                "--path" => asked.path = Some(value()?.into()),
                "--from-now" => asked.from_now = true,
                "--decapsulate" => asked.decapsulate = true,
                "--headers-only" | "--no-promiscuous" => asked.options.push(name),
                "--snapshot-length" | "--buffer-size" | "--sockets" => {
                    let value = value()?;
                    // 0 means the default in the dialog
                    if value != "0" && !value.is_empty() {
                        asked.options.extend([name, value]);
                    }
                }
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// Answers Wireshark.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let asked = Arguments::parse(arguments.iter().skip(1).map(|a| a.to_string_lossy().into_owned()))?;
    let mut out = String::new();
    if asked.interfaces {
        out = interfaces();
    } else if asked.dlts {
        out = "dlt {number=1}{name=EN10MB}{display=As the interface is}\n".to_owned();
    } else if asked.config {
        out = config(asked.interface.as_deref());
    } else if asked.capture {
        return capture(&asked);
    } else if let Some(filter) = &asked.filter {
        // Wireshark takes any output as an error message
        if let Err(e) = filter.parse::<Filter>() {
            out = format!("{e}\n");
        }
    } else {
        bail!("this is the capture source of rdmascope for Wireshark; run rdmascope itself instead");
    }
    match io::stdout().write_all(out.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Replaces braces: they end a value, and Wireshark has no escape for them.
fn value(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || "{}".contains(c) { '_' } else { c }).collect()
}

fn interfaces() -> String {
    let mut out = format!("extcap {{version={}}}{{display=rdmascope: storage over RDMA}}\n", env!("CARGO_PKG_VERSION"));
    for place in list(Path::new(rdma::SYS)) {
        let cannot = place.cannot.as_deref().map(|why| format!("; {why}")).unwrap_or_default();
        let display = value(&format!("rdmascope {}: {}{cannot}", place.name, place.sees));
        out += &format!("interface {{value={PREFIX}{}}}{{display={display}}}\n", value(&place.name));
    }
    for capture in running(Path::new(PROCESSES)) {
        let what =
            format!("rdmascope: running capture of {} into {}", capture.interfaces.join(", "), capture.path.display());
        let cannot = match File::open(&capture.path) {
            Err(e) if e.kind() == ErrorKind::PermissionDenied => "; you may not read it",
            _ => "",
        };
        let display = value(&format!("{what}{cannot}"));
        out += &format!("interface {{value={RUNNING}{}}}{{display={display}}}\n", capture.process);
    }
    out += &format!("interface {{value={FOLLOW}}}{{display=rdmascope: a capture that is being written, or a pipe}}\n");
    out
}

/// The options in Wireshark's dialog, numbered in their order.
fn config(interface: Option<&str>) -> String {
    let decapsulate = "{call=--decapsulate}{display=Without the tunnels of \
        mirrors}{type=boolflag}{default=false}{tooltip=Removes ERSPAN, GRE, VXLAN and GENEVE; each mirror session \
        becomes a separate interface}";
    let from_now = "{call=--from-now}{display=Only new frames}{type=boolflag}{default=false}{tooltip=Leaves out frames \
        that are in the file already}";
    let options = match interface {
        Some(FOLLOW) => vec![
            "{call=--path}{display=File or named pipe}{type=fileselect}{required=true}{tooltip=pcap or pcapng, also \
                compressed; frames \
            appended to it and the next files of a series follow}",
            from_now,
            decapsulate,
        ],
        Some(name) if name.starts_with(RUNNING) => vec![from_now, decapsulate],
        _ => vec![
            "{call=--headers-only}{display=Without bulk data}{type=boolflag}{default=false}{tooltip=Keeps whole \
                messages, but no bulk data \
            of RDMA Reads and Writes}",
            decapsulate,
            "{call=--snapshot-length}{display=Bytes of each frame}{type=unsigned}{range=0,262144}{default=0}{tooltip=0 \
                keeps all}",
            "{call=--buffer-size}{display=MiB of kernel memory}{type=unsigned}{range=0,65536}{default=0}{tooltip=For \
                each socket; 0 is 64}",
            "{call=--sockets}{display=Sockets}{type=unsigned}{range=0,64}{default=0}{tooltip=The kernel spreads pairs \
                of hosts over them; 0 is 1}",
            "{call=--no-promiscuous}{display=Only frames for this host}{type=boolflag}{default=false}",
        ],
    };
    options.iter().enumerate().map(|(n, option)| format!("arg {{number={n}}}{option}\n")).collect()
}

fn capture(asked: &Arguments) -> Result<ExitCode> {
    let (Some(interface), Some(fifo)) = (&asked.interface, &asked.fifo) else {
        bail!("--capture needs --extcap-interface and --fifo")
    };
    let mut how = How { from_now: asked.from_now, decapsulate: asked.decapsulate, process: None };
    if interface == FOLLOW {
        let Some(path) = &asked.path else { bail!("no file or pipe is named: set it in the options of the interface") };
        return follow(path, fifo, &how);
    }
    if let Some(process) = interface.strip_prefix(RUNNING) {
        let found = running(Path::new(PROCESSES)).into_iter().find(|r| r.process.to_string() == process);
        let found = found.with_context(|| format!("there is no capture of rdmascope in process {process} any more"))?;
        how.process = Some(found.process);
        return follow(&found.path, fifo, &how);
    }
    let name =
        interface.strip_prefix(PREFIX).with_context(|| format!("{interface} is not an interface of rdmascope"))?;
    let fifo = fifo.to_str().context("the name of the pipe is not UTF-8")?;
    let mut arguments = vec!["rdmascope", "capture", "--quiet", "-i", name, "-w", fifo];
    if let Some(filter) = &asked.filter {
        arguments.extend(["-f", filter]);
    }
    if asked.decapsulate {
        arguments.push("--decapsulate");
    }
    arguments.extend(asked.options.iter().map(String::as_str));
    super::run(Cli::try_parse_from(arguments)?)
}

/// Passes on a capture of another process.
fn follow(path: &Path, fifo: &Path, how: &How) -> Result<ExitCode> {
    let signals = Signals::listen()?;
    let to =
        OpenOptions::new().write(true).open(fifo).with_context(|| format!("{} cannot be written", fifo.display()))?;
    attach(path, to, fifo, how, &signals)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Arguments {
        Arguments::parse(text.split(' ').map(str::to_owned)).unwrap()
    }

    #[test]
    fn values_stand_behind_an_equals_sign_or_next() {
        let a = asked(
            "--extcap-version=4.6 --capture --extcap-interface rdmascope-eth0 --fifo=/tmp/x \
                --extcap-capture-filter=rdma --headers-only \
            --buffer-size 0 --sockets=4",
        );
        assert_eq!(
            (a.interface.as_deref(), a.fifo.as_deref(), a.filter.as_deref()),
            (Some("rdmascope-eth0"), Some(Path::new("/tmp/x")), Some("rdma"))
        );
        assert!(a.capture);
        assert_eq!(a.options, ["--headers-only", "--sockets", "4"]);
        assert!(
            asked("--capture --from-now --decapsulate").from_now
                && asked("--decapsulate").decapsulate
                && !a.decapsulate
        );
        assert!(Arguments::parse(["--fifo".to_owned()]).is_err());
    }

    #[test]
    fn only_wireshark_is_answered() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_asked(&words("/usr/bin/rdmascope --extcap-interfaces")));
        assert!(is_asked(&words("/home/u/.config/wireshark/extcap/rdmascope-extcap")));
        assert!(!is_asked(&words("rdmascope capture -D")));
    }

    #[test]
    fn options_are_numbered() {
        for (interface, options) in [(FOLLOW, 3), ("rdmascope-running-7", 2), ("rdmascope-eth0", 6)] {
            let text = config(Some(interface));
            assert_eq!(text.lines().count(), options);
            assert!(
                text.lines().enumerate().all(|(n, l)| l.starts_with(&format!("arg {{number={n}}}{{call=--"))),
                "{text}"
            );
            assert!(text.contains("{call=--decapsulate}"));
        }
    }

    #[test]
    fn names_cannot_leave_their_braces() {
        assert_eq!(value("a{b}\nc"), "a_b__c");
    }
}
