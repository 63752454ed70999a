//! Fields and filters as a command line names them.

use crate::zone::Zone;
use rdmascope_dissector::field::{Base, Def, FieldDef, Fields, Kind, Privacy, id_of};
use rdmascope_dissector::filter::{Filter, closest};
use rdmascope_dissector::registry::Registry;
use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A filter that cannot be used: the only error of several lines, for the caret under the place.
#[derive(Debug)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// All fields that a filter can name: those read from frames and those of the analysis; and the user's macros for
/// Wireshark.
pub fn registry() -> Registry {
    let mut registry = Registry::of(
        rdmascope_dissector::registry::DECLARED
            .iter()
            .copied()
            .chain(rdmascope_analyzer::pieces::FIELDS)
            .chain([rdmascope_analyzer::pieces::OURS])
            .chain([rdmascope_analyzer::connection::FIELDS, <crate::streams::f::All as Fields>::FIELDS]),
    );
    let settings = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let settings = settings.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    // a file that is not there, or cannot be read, defines nothing
    if let Some(text) = settings.and_then(|folder| std::fs::read_to_string(folder.join("wireshark/dmacros")).ok()) {
        macros(&text).for_each(|(name, text)| registry.define(name, text));
    }
    // as in Wireshark
    registry.set_local_time(|seconds| {
        static HERE: LazyLock<Zone> = LazyLock::new(Zone::local);
        HERE.offset(seconds)
    });
    registry
}

/// Lines of Wireshark's file of macros: `"name" text`.
fn macros(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (name, text) = line.trim().strip_prefix('"')?.split_once('"')?;
        Some((name, text.trim())).filter(|(name, text)| !name.is_empty() && !text.is_empty())
    })
}

/// Parses the argument of `-Y`. Prints a warning on standard error for names that only Wireshark knows.
pub fn filter(text: Option<&str>, registry: &Registry) -> Result<Option<Filter>, FilterError> {
    let Some(text) = text else { return Ok(None) };
    let filter = Filter::parse(text, registry).map_err(|e| FilterError(format!("filter: {}", e.render(text))))?;
    if let [name, ..] = filter.absent() {
        eprintln!(
            "rdmascope: warning: {name} is a field of Wireshark that is not decoded here: the filter treats it as absent"
        );
    }
    Ok(Some(filter))
}

/// Finds a field named on the command line. One that only Wireshark has is warned of, and is in no frame.
pub fn field(name: &str, registry: &Registry) -> anyhow::Result<Def> {
    if let Some(def) = registry.find(name) {
        return Ok(def);
    }
    if registry.is_wiresharks(name) {
        eprintln!("rdmascope: warning: {name} is a field of Wireshark that is not decoded here: no frame has it");
        let name: &'static str = String::leak(name.to_owned());
        return Ok(Box::leak(Box::new(FieldDef {
            name,
            id: id_of(name),
            label: name,
            kind: Kind::Str,
            base: Base::None,
            mask: 0,
            width: 0,
            values: &[],
            spec: "",
            privacy: Privacy::Keep,
            hidden: false,
        })));
    }
    Err(match closest(name, registry.all().iter().map(|d| d.name)) {
        Some(near) => anyhow::anyhow!("unknown field \"{name}\"; did you mean {near}?"),
        None => anyhow::anyhow!("unknown field \"{name}\"; rdmascope fields lists all"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_read_as_wireshark_writes_them() {
        let text = "# a comment\n\"here\" ip.addr == $1\n\n\"none\"\n";
        assert_eq!(macros(text).collect::<Vec<_>>(), [("here", "ip.addr == $1")]);
    }

    #[test]
    fn fields_that_only_wireshark_has_are_in_no_frame() {
        let registry = registry();
        assert_eq!(field("http.host", &registry).unwrap().name, "http.host");
        assert_eq!(field("smb2.pid", &registry).unwrap().name, "smb2.header_reserved");
        assert!(field("htttp.host", &registry).is_err());
    }
}
