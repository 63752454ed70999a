//! The configuration file, `$XDG_CONFIG_HOME/rdmascope/config.toml` (`~/.config` if that is not set), and the values
//! that are kept between sessions in `$XDG_STATE_HOME/rdmascope/` (`~/.local/state`): `filters`, `recent` captures, the
//! `marks` of captures, the `theme` and the `columns` chosen last. Errors on storing values are ignored.
//!
//! ```toml
//! theme = "light"                 # dark, light, mono
//! time = "clock"                  # relative, delta, clock, date
//! columns = ["smb2.msg_id"]       # fields beside the usual columns of the frame list
//! docs-url = "https://host/docs"  # the site of the manual, for reports
//! ignore = ["RC-CNP"]             # findings to leave out: ID or ID:SIDE
//! [keys]
//! quit = ["q", "F10"]             # names as in the help of rdmascope tui, key "?"
//! ```

use super::theme;
use super::time;
use rdmascope_report::report::{Ignore, Manual};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Filters, captures, and captures with marks that are remembered.
const LINES_MAX: usize = 200;
/// Marks of a capture that are remembered.
const MARKS_MAX: usize = 10_000;

/// Every key of the file, and its value, for the documentation.
pub const CONFIGURATION: &[(&str, &str)] = &[
    (
        "theme",
        "dark, light or mono; the default is the one chosen last with its key, else the one that fits the background \
            colour of the terminal",
    ),
    ("time", "relative, delta, clock or date"),
    ("columns", "fields beside the usual columns of the frame list"),
    (
        "docs-url",
        "address of the manual's site (https, http or file): the findings of a report lead to their pages there, as \
            with --docs-url",
    ),
    (
        "ignore",
        "findings to leave out, each as ID or ID:SIDE, as with --ignore: analyze and tui do not show them, --fail-on \
            does not count them, \
        and their number is told",
    ),
    ("keys", "a table of actions (see below) and the keys that replace their default keys"),
];

/// Settings in the user's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// If not set: the theme that was chosen last, else the one that fits the background the terminal reports.
    pub(crate) theme: Option<theme::Name>,
    pub(crate) time: time::Format,
    pub(crate) columns: Vec<String>,
    #[serde(rename = "docs-url", deserialize_with = "manual")]
    pub(crate) docs_url: Option<Manual>,
    #[serde(deserialize_with = "ignored")]
    pub(crate) ignore: Vec<Ignore>,
    pub(crate) keys: BTreeMap<String, Vec<String>>,
}

impl Config {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// If the file exists and cannot be read or parsed: the reason, in one line.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let Some(path) = base("XDG_CONFIG_HOME", ".config").map(|d| d.join("config.toml")) else {
            return Ok(Self::default());
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => anyhow::bail!("{}: {e}", path.display()),
        };
        Self::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |s| text[..s.start.min(text.len())].matches('\n').count() + 1);
            format!("line {line}: {}", e.message().replace('\n', " "))
        })
    }
}

fn manual<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Manual>, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(from)?;
    Manual::parse(&text).map(Some).map_err(|e| serde::de::Error::custom(format_args!("docs-url {e}")))
}

fn ignored<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Ignore>, D::Error> {
    let texts = <Vec<String> as serde::Deserialize>::deserialize(from)?;
    let parsed = texts.iter().map(|text| Ignore::parse(text)).collect::<Result<_, _>>();
    parsed.map_err(|e| serde::de::Error::custom(format_args!("ignore: {e}")))
}

/// The settings of the configuration file that concern reports, too.
#[derive(Clone, Debug, Default)]
pub struct ForReports {
    /// The manual's site.
    pub docs_url: Option<Manual>,
    /// Findings to leave out.
    pub ignore: Vec<Ignore>,
}

/// The settings of the configuration file for reports.
///
/// # Errors
/// If the file exists and cannot be read or parsed: the reason, in one line.
pub fn for_reports() -> anyhow::Result<ForReports> {
    let Config { docs_url, ignore, .. } = Config::load()?;
    Ok(ForReports { docs_url, ignore })
}

/// The folder of the program in one of the user, or in its place by custom.
pub(crate) fn base(variable: &str, fallback: &str) -> Option<PathBuf> {
    // the specification says that a path that is not absolute must be ignored
    let chosen = std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|p| p.is_absolute()).map(|h| h.join(fallback));
    Some(chosen.or_else(home)?.join("rdmascope"))
}

/// A value that is stored between sessions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keep {
    /// Filters, the last one last.
    Filters(Vec<String>),
    /// The theme that was chosen with its key.
    Theme(theme::Name),
    /// Names of the fields that are columns of the frame list.
    Columns(Vec<String>),
    /// The numbers (from 1) of the frames of a capture that are marked.
    Marks(PathBuf, Vec<u32>),
    /// A capture that was opened.
    Opened(PathBuf),
}

/// The stored values of earlier sessions; it can store more.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// Folder of the stored values; without one nothing is stored.
    dir: Option<PathBuf>,
}

impl Memory {
    /// The user's own.
    pub(crate) fn of_user() -> Self {
        Self { dir: base("XDG_STATE_HOME", ".local/state") }
    }

    /// Keeps something.
    pub(crate) fn keep(&self, what: &Keep) {
        match what {
            Keep::Filters(filters) => self.keep_lines("filters", filters.clone()),
            Keep::Theme(theme) => self.keep_lines("theme", vec![theme.word().to_owned()]),
            Keep::Columns(names) => self.keep_lines("columns", names.clone()),
            Keep::Marks(path, marks) => {
                let Some((path, size)) = identity(path) else { return };
                let mut lines = self.lines("marks");
                lines.retain(|line| marks_line(line).is_none_or(|(_, _, of)| of != path));
                if !marks.is_empty() {
                    let numbers: Vec<String> = marks.iter().take(MARKS_MAX).map(u32::to_string).collect();
                    lines.push(format!("{size} {} {path}", numbers.join(",")));
                }
                self.keep_lines("marks", lines);
            }
            Keep::Opened(path) => {
                let Some((path, _)) = identity(path) else { return };
                let mut lines = self.lines("recent");
                lines.retain(|line| *line != path);
                lines.push(path);
                self.keep_lines("recent", lines);
            }
        }
    }

    /// Filters used before, the last one last.
    pub(crate) fn filters(&self) -> Vec<String> {
        self.lines("filters")
    }

    /// Captures opened before that are still there, the last one last.
    pub(crate) fn recent(&self) -> Vec<String> {
        let mut paths = self.lines("recent");
        paths.retain(|path| Path::new(path).is_file());
        paths
    }

    /// The theme that was chosen with its key last.
    pub(crate) fn theme(&self) -> Option<theme::Name> {
        let kept = self.lines("theme");
        theme::Name::ALL.into_iter().find(|name| kept.first().is_some_and(|word| word == name.word()))
    }

    /// Columns that were chosen last.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.lines("columns")
    }

    /// Number of sealed chunks that are kept, and a placeholder for the others; `None` if all are kept.
    pub(crate) fn marks(&self, path: &Path) -> BTreeSet<u32> {
        let Some((path, size)) = identity(path) else { return BTreeSet::new() };
        let lines = self.lines("marks");
        let line =
            lines.iter().filter_map(|line| marks_line(line)).find(|(of_size, _, of)| *of_size == size && *of == path);
        line.map_or_else(BTreeSet::new, |(_, numbers, _)| {
            numbers.split(',').filter_map(|n| n.parse().ok()).filter(|n| *n > 0).collect()
        })
    }

    /// The lines of a file of stored values.
    fn lines(&self, name: &str) -> Vec<String> {
        let Some(path) = self.dir.as_ref().map(|d| d.join(name)) else { return Vec::new() };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].to_vec()
    }

    /// Keeps the last of these lines. The file is written beside and renamed, so that of two programs at once one
    /// writes a complete list.
    fn keep_lines(&self, name: &str, lines: Vec<String>) {
        let Some(dir) = &self.dir else { return };
        let beside = dir.join(format!("{name}.{}", std::process::id()));
        let text: String = lines[lines.len().saturating_sub(LINES_MAX)..]
            .iter()
            .map(|line| format!("{}\n", line.replace(['\n', '\r'], " ")))
            .collect();
        let written = std::fs::create_dir_all(dir).and_then(|()| {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
            file.write_all(text.as_bytes())
        });
        if written.and_then(|()| std::fs::rename(&beside, dir.join(name))).is_err() {
            let _ = std::fs::remove_file(&beside);
        }
    }
}

/// Size in bytes, numbers, path.
fn marks_line(line: &str) -> Option<(u64, &str, &str)> {
    let (size, rest) = line.split_once(' ')?;
    let (numbers, path) = rest.split_once(' ')?;
    Some((size.parse().ok()?, numbers, path))
}

/// The full path of a regular file, if it fits on a line, and its size in bytes.
fn identity(path: &Path) -> Option<(String, u64)> {
    let path = path.canonicalize().ok()?;
    let about = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r']))?;
    Some((text.to_owned(), about.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_understood() {
        let text =
            "theme = \"light\"\ntime = \"clock\"\ncolumns = [\"smb2.msg_id\"]\n[keys]\nquit = [\"q\", \"F10\"]\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.theme, config.time, config.columns.len(), config.keys["quit"].len()),
            (Some(theme::Name::Light), time::Format::Clock, 1, 2)
        );
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_line_of_marks_has_size_numbers_and_a_path_that_may_have_spaces() {
        assert_eq!(marks_line("120 3,17 /tmp/a b.pcap"), Some((120, "3,17", "/tmp/a b.pcap")));
        assert_eq!(marks_line("x 3 /tmp/a"), None);
    }

    #[test]
    fn marks_stay_with_their_capture_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory { dir: Some(dir.path().join("state")) };
        let [one, other] = ["one two.pcap", "other.pcap"].map(|name| dir.path().join(name));
        std::fs::write(&one, "1234").unwrap();
        std::fs::write(&other, "12").unwrap();
        memory.keep(&Keep::Marks(one.clone(), vec![3, 17]));
        memory.keep(&Keep::Marks(other.clone(), vec![5]));
        memory.keep(&Keep::Marks(one.clone(), vec![3, 18]));
        assert_eq!((memory.marks(&one), memory.marks(&other)), (BTreeSet::from([3, 18]), BTreeSet::from([5])));
        std::fs::write(&one, "12345").unwrap();
        assert!(memory.marks(&one).is_empty(), "another capture of the same name");
        memory.keep(&Keep::Marks(other.clone(), Vec::new()));
        assert!(memory.marks(&other).is_empty());
    }

    #[test]
    fn captures_opened_before_are_remembered_once_while_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory { dir: Some(dir.path().to_owned()) };
        let paths = ["a.pcap", "b.pcap"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "").unwrap());
        for path in [&paths[0], &paths[1], &paths[0]] {
            memory.keep(&Keep::Opened(path.clone()));
        }
        let names = || memory.recent().iter().map(|p| p.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(), ["b.pcap", "a.pcap"]);
        std::fs::remove_file(&paths[1]).unwrap();
        assert_eq!(names(), ["a.pcap"]);
    }

    #[test]
    fn documented_settings_exist() {
        for (name, values) in CONFIGURATION {
            let line = match *name {
                "columns" => "columns = []".to_owned(),
                "ignore" => "ignore = [\"RC-CNP\", \"smb2-error:server\"]".to_owned(),
                "keys" => "[keys]".to_owned(),
                "docs-url" => "docs-url = \"https://host/rdmascope\"".to_owned(),
                // every word is taken
                _ => values
                    .split(';')
                    .next()
                    .unwrap_or_default()
                    .split([',', ' '])
                    .filter(|w| !w.is_empty() && *w != "or")
                    .fold(String::new(), |_, word| {
                        let line = format!("{name} = \"{word}\"");
                        Config::parse(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
                        line
                    }),
            };
            Config::parse(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let e = Config::parse("theme = \"dark\"\ncolour = 1\n").unwrap_err();
        assert!(e.starts_with("line 2: ") && e.contains("colour"), "{e}");
        let e = Config::parse("docs-url = \"javascript:alert(1)\"\n").unwrap_err();
        assert!(e.starts_with("line 1: docs-url is not an address"), "{e}");
        let e = Config::parse("theme = \"dark\"\nignore = [\"RC-CNP\", \"RC-ECM\"]\n").unwrap_err();
        assert!(e.starts_with("line 2: ignore: RC-ECM is not a rule; did you mean RC-ECN?"), "{e}");
    }
}
