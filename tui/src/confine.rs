//! Rights that a command gives up before it reads a capture, if it only reads captures and the kernel has Landlock
//! (landlock(7), Linux 5.13). It can then read files and write into the folder of its output and the one of temporary
//! files, but neither connect nor listen (Linux 6.7). This limits the damage if a malicious capture exploits a fault in
//! a decoder. Without Landlock nothing changes.

use crate::cli::{Command, Exported};
use std::path::{Path, PathBuf};

/// Gives up rights that `command` does not need, if it only reads captures. To be called before other threads run.
#[cfg(target_os = "linux")]
pub(crate) fn to_need(command: &Command) {
    if let Some(written) = written(command) {
        // an additional protection: if it is not available, the others remain
        let _ = confine(&folders(&written));
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn to_need(command: &Command) {
    let _ = written(command).map(|written| folders(&written));
}

/// The files and folders that a command writes which otherwise only reads captures; `None` for a command that does
/// more.
fn written(command: &Command) -> Option<Vec<&Path>> {
    let paths: Vec<Option<&Path>> = match command {
        Command::Analyze(args) if args.live.interfaces.is_empty() => {
            vec![args.output.as_deref(), args.write_expect.as_deref()]
        }
        Command::Dissect(args) => {
            vec![args.write.as_deref(), args.export_objects.as_ref().map(|objects| objects.folder.as_path())]
        }
        Command::Anonymize(args) => vec![Some(&args.files.output)],
        Command::Cut(args) => vec![Some(&args.files.output)],
        Command::Compare(args) => vec![args.outlet.path(), args.write.as_deref()],
        Command::Diff(args) => vec![args.outlet.path()],
        Command::Export(args) => match &args.what {
            Exported::Annotated { output, .. } => vec![Some(output)],
            Exported::Parquet { folder, .. } | Exported::Payloads { folder, .. } => vec![Some(folder)],
            // runs tshark
            Exported::Wireshark { .. } => return None,
        },
        Command::Analyze(_)
        | Command::Fields(_)
        | Command::Explain(_)
        | Command::Schema(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Rules(_)
        | Command::Replay(_)
        | Command::Probe(_)
        | Command::Peer(_)
        | Command::Tui(_)
        | Command::Capture(_) => return None,
    };
    Some(paths.into_iter().flatten().collect())
}

/// The existing folders of the files to be written, and that of temporary files.
fn folders(written: &[&Path]) -> Vec<PathBuf> {
    let folder = |path: &Path| {
        let parents =
            path.ancestors().skip(1).map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        parents.into_iter().find(|parent| parent.is_dir()).unwrap_or(Path::new("/")).to_owned()
    };
    // a device or pipe is opened at its own path; a link leads to another one
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let named = written.iter().flat_map(|path| [folder(path), folder(&real(path))]);
    named.chain([std::env::temp_dir()]).collect()
}

#[cfg(target_os = "linux")]
fn confine(folders: &[PathBuf]) -> Result<landlock::RestrictionStatus, landlock::RulesetError> {
    use landlock::{ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr};
    // an older kernel confines only what it knows
    const KNOWN: ABI = ABI::V4;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .create()?;
    if let Ok(root) = PathFd::new("/") {
        rules = rules.add_rule(PathBeneath::new(root, AccessFs::ReadFile | AccessFs::ReadDir))?;
    }
    for folder in folders {
        if let Ok(folder) = PathFd::new(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, AccessFs::from_all(KNOWN)))?;
        }
    }
    rules.restrict_self()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_are_those_of_the_outputs_and_of_temporary_files() {
        let folders = folders(&[Path::new("report.html"), Path::new("/proc/nowhere/else/x")]);
        assert_eq!(folders, [".", ".", "/proc", "/proc", &std::env::temp_dir().to_string_lossy()].map(PathBuf::from));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_confined_reads_everything_and_writes_and_listens_no_more() {
        let (open, closed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (within, without) = (open.path().join("report"), closed.path().join("report"));
        // it holds for a thread and for good
        std::thread::spawn(move || {
            let status = confine(&[open.path().to_owned()]).unwrap();
            std::fs::write(&within, "kept").unwrap();
            if status.ruleset == landlock::RulesetStatus::NotEnforced {
                return;
            }
            assert_eq!(std::fs::read_to_string(&within).unwrap(), "kept");
            assert!(std::fs::write(&without, "not kept").is_err());
            assert!(std::fs::read(std::env::current_exe().unwrap()).is_ok());
            if status.ruleset == landlock::RulesetStatus::FullyEnforced {
                assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
            }
        })
        .join()
        .unwrap();
    }
}
