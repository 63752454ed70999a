//! Fields and filters as a command line names them.

use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::{Filter, closest};
use rdmascope_dissector::registry::Registry;
use std::fmt;

/// A filter that cannot be used: the only error of several lines, for the caret under the place.
#[derive(Debug)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// Every field that a filter can name: what is read from frames, and what the analysis says of them.
pub fn registry() -> Registry {
    Registry::of(rdmascope_dissector::registry::DECLARED.iter().copied().chain([rdmascope_analyzer::connection::FIELDS]))
}

/// Parses what stands behind `-Y`.
pub fn filter(text: Option<&str>, registry: &Registry) -> Result<Option<Filter>, FilterError> {
    let Some(text) = text else { return Ok(None) };
    Filter::parse(text, registry).map(Some).map_err(|e| FilterError(format!("filter: {}", e.render(text))))
}

/// Finds a field named on the command line.
pub fn field(name: &str, registry: &Registry) -> anyhow::Result<Def> {
    registry.find(name).ok_or_else(|| match closest(name, registry.all().iter().map(|d| d.name)) {
        Some(near) => anyhow::anyhow!("unknown field \"{name}\"; did you mean {near}?"),
        None => anyhow::anyhow!("unknown field \"{name}\"; rdmascope fields lists all"),
    })
}
