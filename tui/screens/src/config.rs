//! The configuration file, `$XDG_CONFIG_HOME/rdmascope/config.toml` (`~/.config` where that is not set), and the history of filters in
//! `$XDG_STATE_HOME/rdmascope/filters` (`~/.local/state`).
//!
//! ```toml
//! theme = "light"                 # dark, light, mono
//! time = "clock"                  # relative, delta, clock, date
//! columns = ["smb2.msg_id"]       # fields beside the usual columns of the frame list
//! [keys]
//! quit = ["q", "F10"]             # names as in the help of rdmascope tui, key "?"
//! ```

use super::theme;
use super::time;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Filters remembered.
const HISTORY_MAX: usize = 200;

/// What the user can choose for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where it is not said: the one that was chosen last, else that for the ground that the terminal says it has.
    pub(crate) theme: Option<theme::Name>,
    pub(crate) time: time::Format,
    pub(crate) columns: Vec<String>,
    pub(crate) keys: BTreeMap<String, Vec<String>>,
}

impl Config {
    /// Reads the file, where there is one.
    ///
    /// # Errors
    /// A file that is there and cannot be read or understood, in one line.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let Some(path) = base("XDG_CONFIG_HOME", ".config").map(|d| d.join("config.toml")) else { return Ok(Self::default()) };
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

fn base(variable: &str, fallback: &str) -> Option<PathBuf> {
    // the specification: a path that is not absolute is to be ignored
    let chosen = std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|p| p.is_absolute()).map(|h| h.join(fallback));
    Some(chosen.or_else(home)?.join("rdmascope"))
}

/// Filters used before, the last one last.
pub(crate) fn history() -> Vec<String> {
    let Some(path) = base("XDG_STATE_HOME", ".local/state").map(|d| d.join("filters")) else { return Vec::new() };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(HISTORY_MAX)..].to_vec()
}

/// The theme that was chosen with its key last.
pub(crate) fn kept_theme() -> Option<theme::Name> {
    let text = std::fs::read_to_string(base("XDG_STATE_HOME", ".local/state")?.join("theme")).ok()?;
    theme::Name::ALL.into_iter().find(|name| name.word() == text.trim())
}

/// Keeps the theme. That it cannot be kept is no reason to disturb anybody.
pub(crate) fn keep_theme(theme: theme::Name) {
    let Some(dir) = base("XDG_STATE_HOME", ".local/state") else { return };
    if std::fs::create_dir_all(&dir).is_ok() {
        let _ = std::fs::write(dir.join("theme"), theme.word());
    }
}

/// Keeps the history. That it cannot be kept is no reason to disturb anybody.
pub(crate) fn keep_history(filters: &[String]) {
    let Some(dir) = base("XDG_STATE_HOME", ".local/state") else { return };
    if std::fs::create_dir_all(&dir).is_err() {
        return;
    }
    if let Ok(mut file) = std::fs::File::create(dir.join("filters")) {
        let recent = &filters[filters.len().saturating_sub(HISTORY_MAX)..];
        let _ = recent.iter().try_for_each(|f| writeln!(file, "{}", f.replace(['\n', '\r'], " ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_understood() {
        let text = "theme = \"light\"\ntime = \"clock\"\ncolumns = [\"smb2.msg_id\"]\n[keys]\nquit = [\"q\", \"F10\"]\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.theme, config.time, config.columns.len(), config.keys["quit"].len()),
            (Some(theme::Name::Light), time::Format::Clock, 1, 2)
        );
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let e = Config::parse("theme = \"dark\"\ncolour = 1\n").unwrap_err();
        assert!(e.starts_with("line 2: ") && e.contains("colour"), "{e}");
    }
}
