//! Texts about the path to RDMA that all formats share: a line for each question, a mark for each answer.

use super::ReportData;
use rdmascope_analyzer::path::{Carried, Kind, Path, Rung, State};

/// The mark of an answer: a tick, a cross, a question mark if the capture does not show it, a dash if it was not
/// needed.
pub const fn mark(state: State) -> &'static str {
    match state {
        State::Yes => "✓",
        State::No => "✗",
        State::NotSeen => "?",
        State::NotNeeded => "–",
    }
}

/// Text of a rung beside its name.
pub fn detail(rung: &Rung) -> String {
    let alone = match rung.state {
        State::Yes => "yes",
        State::No => "no",
        State::NotSeen => "not seen",
        State::NotNeeded => "not needed",
    };
    match (rung.state, rung.text.as_str()) {
        (_, "") => alone.to_owned(),
        (State::NotSeen | State::NotNeeded, text) => format!("{alone}: {text}"),
        (_, text) => text.to_owned(),
    }
}

/// "SMB from 192.0.2.2 to 192.0.2.1 runs over TCP".
pub fn headline(path: &Path) -> String {
    let verb = if path.carried == Carried::Nothing { "was" } else { "runs" };
    format!("{} from {} to {} {verb} {}", path.kind.name(), path.client, path.server, path.carried.name())
}

/// Paths that a text report shows: those on which RDMA does not carry everything, or not as well as it could.
pub fn asked_for(data: &ReportData) -> impl Iterator<Item = &Path> {
    data.report.paths.iter().filter(|p| p.verdict.is_some() || p.kind == Kind::Smb && p.carried == Carried::Tcp)
}
