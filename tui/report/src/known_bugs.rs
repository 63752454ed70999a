//! Known bugs of implementations as a file (TOML): rows of the rulebook with the versions that have them, and bugs that
//! are newer than this program, each with the display filter that its frames pass.
//!
//! Known bugs are `[[bug]]` tables. A table with the id of a built-in bug replaces the values it names and keeps the
//! rest; any other table defines a new bug and must be complete. A file is checked when it is read.

use crate::dissection::{self, Before};
use rdmascope_analyzer::connection;
use rdmascope_analyzer::finding::{Blame, Certainty};
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_analyzer::rules::{self, Group, Hits, Row, Rule, Severity};
use rdmascope_capture::{Interface, Record};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::registry::Registry;
use rdmascope_dissector::trace::Trace;
use serde::Deserialize;
use std::fmt::Write;
use std::ops::Range;
use std::sync::OnceLock;
use toml::Spanned;

/// The format of the file.
const FORMAT: u32 = 1;
/// Maximum length of an id, in bytes.
const ID_MAX: usize = 32;

/// A mistake in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    line: usize,
    what: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Error {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: Spanned<u32>,
    #[serde(default)]
    bug: Vec<Spanned<Bug>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    id: Spanned<String>,
    severity: Option<Spanned<String>>,
    spec: Option<Spanned<String>>,
    title: Option<Spanned<String>>,
    says: Option<Spanned<String>>,
    causes: Option<Spanned<Vec<Spanned<String>>>>,
    cure: Option<Spanned<String>>,
    product: Option<Spanned<String>>,
    since: Option<Spanned<String>>,
    fixed: Option<Vec<Spanned<String>>>,
    commit: Option<Spanned<String>>,
    note: Option<Spanned<String>>,
    when: Option<Spanned<String>>,
    by: Option<Spanned<String>>,
}

/// The known bugs of a file.
#[derive(Debug)]
pub struct KnownBugs {
    rows: Vec<&'static Row>,
    /// By place in `rows`: the side to blame, and the filter that frames with the bug pass.
    conditions: Vec<(usize, Blame, Filter)>,
}

/// A bug that is known by a filter.
#[derive(Clone, Debug)]
pub struct Condition {
    rule: Rule,
    by: Blame,
    filter: Filter,
}

impl Condition {
    /// Makes an extractor extract the fields of the filter.
    pub fn bind(&mut self, extractor: &mut Extractor) {
        self.filter.bind(extractor);
    }

    /// Reports the bug if the last frame has it.
    pub fn check<S: Sink>(&self, meta: &FrameMeta, extractor: &Extractor, pipeline: &mut Pipeline<S>) {
        if self.filter.matches(extractor) {
            pipeline.known_bug(
                meta,
                self.rule,
                self.by,
                Certainty::Certain,
                format_args!("a frame passes {}", self.filter.text()),
            );
        }
    }
}

/// Looks for the new bugs of the file that was given, in the frames of one analysis.
#[derive(Clone, Debug)]
pub struct Search {
    extractor: Extractor,
    conditions: Vec<Condition>,
}

impl Search {
    /// Creates the search; `None` if there are no conditions to look for.
    pub fn new() -> Option<Box<Self>> {
        let mut conditions = CONDITIONS.get().filter(|conditions| !conditions.is_empty())?.clone();
        let mut extractor = Extractor::new();
        conditions.iter_mut().for_each(|condition| condition.bind(&mut extractor));
        Some(Box::new(Self { extractor, conditions }))
    }

    /// True if the filters depend only on a frame and its connection. Filters for the numbers of connections and
    /// requests do not qualify: these are counted over the whole capture.
    pub fn is_by_connection(&self) -> bool {
        let counted = |def: Def| connection::FIELDS.iter().any(|f| f.id == def.id);
        !self.extractor.wants_line() && !self.extractor.wanted().any(counted)
    }

    /// Begins a frame. Returns the observer for its decoding and its analysis.
    pub fn begin(&mut self, record: &Record<'_>, interfaces: &[Interface], before: Before) -> &mut Extractor {
        self.extractor.begin();
        dissection::trace(record, interfaces, before, &mut self.extractor);
        &mut self.extractor
    }

    /// The frame is over: reports the bugs that it shows.
    pub fn end<S: Sink>(&mut self, meta: &FrameMeta, pipeline: &mut Pipeline<S>) {
        self.extractor.end();
        self.conditions.iter().for_each(|condition| condition.check(meta, &self.extractor, pipeline));
    }
}

/// Of the file that was given.
static CONDITIONS: OnceLock<Vec<Condition>> = OnceLock::new();

/// The conditions of the file that was given, if one was.
pub fn conditions() -> Vec<Condition> {
    CONDITIONS.get().cloned().unwrap_or_default()
}

fn keep(text: &str) -> &'static str {
    // a file is read once, and its rows are used until the program ends
    String::leak(text.to_owned())
}

/// A row; of a new bug also the side to blame and the filter that frames with it pass.
type Known = (&'static Row, Option<(Blame, Filter)>);

struct Reader<'a> {
    text: &'a str,
    registry: &'a Registry,
}

impl Reader<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        self.text.as_bytes()[..at.start.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    fn wrong(&self, at: &Range<usize>, what: impl Into<String>) -> Error {
        Error { line: self.line(at), what: what.into() }
    }

    /// A text that a row can have: one line, of printable characters, not empty.
    fn text(&self, key: &str, value: Option<&Spanned<String>>, built_in: &'static str) -> Result<&'static str, Error> {
        let Some(value) = value else { return Ok(built_in) };
        let text = value.get_ref();
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err(self.wrong(&value.span(), format!("{key} is one line of text")));
        }
        Ok(keep(text.trim()))
    }

    fn version(&self, key: &str, value: &Spanned<String>) -> Result<[u32; 3], Error> {
        rules::version(value.get_ref())
            .ok_or_else(|| self.wrong(&value.span(), format!("{key} has versions like \"6.12.49\"")))
    }

    fn hits(&self, bug: &Bug, built_in: &Hits) -> Result<Hits, Error> {
        let since = match &bug.since {
            // an empty version means that there is no first version
            Some(value) if value.get_ref().is_empty() => "",
            Some(value) => self.version("since", value).map(|_| keep(value.get_ref()))?,
            None => built_in.since,
        };
        let fixed: &'static [&'static str] = match &bug.fixed {
            Some(versions) => {
                let mut before = rules::version(since).unwrap_or_default();
                for value in versions {
                    let version = self.version("fixed", value)?;
                    if version <= before && before != [0; 3] {
                        let why =
                            format!("fixed must list rising versions, later than since: {} is not", value.get_ref());
                        return Err(self.wrong(&value.span(), why));
                    }
                    before = version;
                }
                Vec::leak(versions.iter().map(|value| keep(value.get_ref())).collect())
            }
            None => built_in.fixed,
        };
        let commit = match &bug.commit {
            Some(value) if value.get_ref().len() >= 7 && value.get_ref().bytes().all(|b| b.is_ascii_hexdigit()) => {
                keep(value.get_ref())
            }
            Some(value) => return Err(self.wrong(&value.span(), "commit must have at least seven hexadecimal digits")),
            None => built_in.commit,
        };
        let note = match &bug.note {
            Some(value) if value.get_ref().is_empty() => "",
            note => self.text("note", note.as_ref(), built_in.note)?,
        };
        Ok(Hits { product: self.text("product", bug.product.as_ref(), built_in.product)?, since, fixed, commit, note })
    }

    fn row(&self, bug: &Bug, at: &Range<usize>) -> Result<Known, Error> {
        let id = bug.id.get_ref();
        let is_id = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if !id.starts_with("BUG-") || id.len() > ID_MAX || !id.split('-').all(is_id) {
            let why = format!(
                "{id}: an id is BUG- followed by capital letters, digits and -, at most {ID_MAX} characters in all"
            );
            return Err(self.wrong(&bug.id.span(), why));
        }
        let built_in = Rule::ALL.iter().map(|rule| rule.declared()).find(|row| row.id == id);
        if built_in.is_none() {
            let needed = [
                ("title", bug.title.is_some()),
                ("spec", bug.spec.is_some()),
                ("says", bug.says.is_some()),
                ("causes", bug.causes.is_some()),
                ("cure", bug.cure.is_some()),
                ("product", bug.product.is_some()),
                ("when", bug.when.is_some()),
            ];
            if let Some((key, _)) = needed.iter().find(|(_, is_there)| !is_there) {
                return Err(self.wrong(at, format!("{id} is not built in, and needs {key}")));
            }
        }
        const NONE: Row = Row {
            id: "",
            severity: Severity::Error,
            group: Group::KnownBug,
            spec: "",
            title: "",
            says: "",
            causes: &[],
            cure: "",
            documented: &[],
            hits: Hits::NONE,
        };
        let known = built_in.unwrap_or(&NONE);
        let severity = match &bug.severity {
            Some(value) => Severity::from_name(value.get_ref())
                .ok_or_else(|| self.wrong(&value.span(), "severity is \"note\", \"warn\" or \"error\""))?,
            None => known.severity,
        };
        let causes: &'static [&'static str] = match &bug.causes {
            Some(causes) if causes.get_ref().is_empty() => {
                return Err(self.wrong(&causes.span(), "causes must have at least one text"));
            }
            Some(causes) => {
                let kept: Result<Vec<_>, Error> =
                    causes.get_ref().iter().map(|cause| self.text("causes", Some(cause), "")).collect();
                Vec::leak(kept?)
            }
            None => known.causes,
        };
        let condition = match (&bug.when, built_in) {
            (Some(when), Some(_)) => {
                return Err(self.wrong(&when.span(), format!("{id} is built in: it needs no filter")));
            }
            (Some(when), None) => {
                let filter = Filter::parse(when.get_ref(), self.registry)
                    .map_err(|e| self.wrong(&when.span(), format!("when is not a filter: {}", e.message)))?;
                if when.get_ref().trim().is_empty() {
                    return Err(self.wrong(&when.span(), "when is a filter"));
                }
                Some((self.blame(bug.by.as_ref())?, filter))
            }
            (None, _) => match &bug.by {
                Some(by) => return Err(self.wrong(&by.span(), "by needs when")),
                None => None,
            },
        };
        let row = Row {
            id: built_in.map_or_else(|| keep(id), |row| row.id),
            severity,
            group: Group::KnownBug,
            spec: self.text("spec", bug.spec.as_ref(), known.spec)?,
            title: self.text("title", bug.title.as_ref(), known.title)?,
            says: self.text("says", bug.says.as_ref(), known.says)?,
            causes,
            cure: self.text("cure", bug.cure.as_ref(), known.cure)?,
            documented: known.documented,
            hits: self.hits(bug, &known.hits)?,
        };
        Ok((Box::leak(Box::new(row)), condition))
    }

    fn blame(&self, by: Option<&Spanned<String>>) -> Result<Blame, Error> {
        const SIDES: [Blame; 4] = [Blame::Client, Blame::Server, Blame::Network, Blame::Unknown];
        let Some(by) = by else { return Ok(Blame::Unknown) };
        let side = SIDES.into_iter().find(|side| side.name() == by.get_ref());
        side.ok_or_else(|| self.wrong(&by.span(), "by is \"client\", \"server\", \"network\" or \"unknown\""))
    }
}

impl KnownBugs {
    /// Reads and checks the content of a file. Fields of filters are those of the registry.
    pub fn read(text: &str, registry: &Registry) -> Result<Self, Error> {
        let reader = Reader { text, registry };
        let file: File = toml::from_str(text).map_err(|e| reader.wrong(&e.span().unwrap_or(0..0), e.message()))?;
        if *file.format.get_ref() != FORMAT {
            return Err(reader.wrong(
                &file.format.span(),
                format!("format {} is not known; the format is {FORMAT}", file.format.get_ref()),
            ));
        }
        let mut this = Self { rows: Vec::new(), conditions: Vec::new() };
        for bug in &file.bug {
            let (row, condition) = reader.row(bug.get_ref(), &bug.span())?;
            if this.rows.iter().any(|other| other.id == row.id) {
                return Err(reader.wrong(&bug.get_ref().id.span(), format!("{} is listed twice", row.id)));
            }
            if let Some((by, filter)) = condition {
                this.conditions.push((this.rows.len(), by, filter));
            }
            this.rows.push(row);
        }
        if this.conditions.len() > rules::GIVEN_MAX {
            return Err(Error {
                line: 1,
                what: format!("{} bugs are new; at most {} can be added", this.conditions.len(), rules::GIVEN_MAX),
            });
        }
        Ok(this)
    }

    /// Puts the bugs of the file into effect. To be called once, before the analysis; returns false if it was called
    /// before.
    pub fn give(self) -> bool {
        let Some(given) = rules::give(&self.rows) else { return false };
        let conditions =
            self.conditions.into_iter().map(|(row, by, filter)| Condition { rule: given[row], by, filter });
        CONDITIONS.set(conditions.collect()).is_ok()
    }
}

/// The known bugs that hold now, as such a file.
pub fn write() -> String {
    // strings of TOML and of JSON are written alike
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list = |texts: &[&str]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "# Known bugs of implementations, as rdmascope {} knows them: what each is, and which versions have it.\n\
         # rdmascope analyze TRACE --rules FILE takes what stands here in place of what is built in; what does not \
         stand here stays.\n\
         # A bug that is new needs every key but severity, since, fixed, commit, note and by, and `when`: the display \
         filter that\n\
         # its frames pass. `by` is who is to blame: client, server, network or unknown.\n\
         format = {FORMAT}\n",
        env!("CARGO_PKG_VERSION")
    );
    let conditions = conditions();
    for rule in Rule::all() {
        let row = rule.row();
        if row.group != Group::KnownBug {
            continue;
        }
        let _ = writeln!(out, "\n[[bug]]\nid = {}\nseverity = {}", quoted(row.id), quoted(row.severity.name()));
        let _ = writeln!(out, "spec = {}\ntitle = {}", quoted(row.spec), quoted(row.title));
        let _ =
            writeln!(out, "says = {}\ncauses = [{}]\ncure = {}", quoted(row.says), list(row.causes), quoted(row.cure));
        let _ = writeln!(out, "product = {}", quoted(row.hits.product));
        for (key, value) in [("since", row.hits.since), ("commit", row.hits.commit), ("note", row.hits.note)] {
            if !value.is_empty() {
                let _ = writeln!(out, "{key} = {}", quoted(value));
            }
        }
        if !row.hits.fixed.is_empty() {
            let _ = writeln!(out, "fixed = [{}]", list(row.hits.fixed));
        }
        if let Some(condition) = conditions.iter().find(|c| c.rule == rule) {
            let _ = writeln!(out, "when = {}\nby = {}", quoted(condition.filter.text()), quoted(condition.by.name()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<KnownBugs, String> {
        KnownBugs::read(text, &crate::fields::registry()).map_err(|e| e.to_string())
    }

    const NEW: &str = "format = 1\n[[bug]]\nid = \"BUG-X-1\"\ntitle = \"A title.\"\nspec = \"RFC 1\"\nsays = \"It \
        says.\"\ncauses = [\"A cause\"]\n\
        cure = \"A cure.\"\nproduct = \"Linux\"\nwhen = \"smb2.cmd == 5\"\nby = \"client\"\n";

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let bugs = read(&write()).unwrap();
        let built_in: Vec<&Row> =
            Rule::ALL.iter().map(|r| r.declared()).filter(|row| row.group == Group::KnownBug).collect();
        assert_eq!(bugs.rows, built_in);
        assert!(bugs.conditions.is_empty());
    }

    #[test]
    fn a_row_changes_what_it_names_and_leaves_the_rest() {
        let bugs = read(
            "format = 1\n[[bug]]\nid = \"BUG-CVE-2025-39943\"\nfixed = [\"5.15.200\", \"6.18\"]\nseverity = \"warn\"\n",
        )
        .unwrap();
        let (row, built_in) = (bugs.rows[0], Rule::BugCve202539943.declared());
        assert_eq!(
            (row.title, row.says, row.hits.since, row.severity),
            (built_in.title, built_in.says, "5.15", Severity::Warn)
        );
        assert_eq!(row.hits.fixed, ["5.15.200", "6.18"]);
    }

    #[test]
    fn a_new_bug_has_its_filter() {
        let bugs = read(NEW).unwrap();
        assert_eq!((bugs.rows[0].id, bugs.rows[0].severity), ("BUG-X-1", Severity::Error));
        assert_eq!((bugs.conditions[0].1, bugs.conditions[0].2.text()), (Blame::Client, "smb2.cmd == 5"));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let of = |from: &str, to: &str| read(&NEW.replace(from, to)).unwrap_err();
        for (from, to, line, said) in [
            ("format = 1", "format = 2", 1, "format 2"),
            ("BUG-X-1", "X-1", 3, "BUG-"),
            ("BUG-X-1", "BUG-x", 3, "capital"),
            ("title = \"A title.\"\n", "", 2, "needs title"),
            ("\"RFC 1\"", "\"\"", 5, "one line of text"),
            ("\"It says.\"", "\"a\\nb\"", 6, "one line of text"),
            ("[\"A cause\"]", "[]", 7, "at least one text"),
            ("smb2.cmd == 5", "smb2.cmd ==", 10, "not a filter"),
            ("smb2.cmd == 5", "no.such == 5", 10, "not a filter"),
            ("\"client\"", "\"me\"", 11, "by is"),
            ("product", "colour", 9, "colour"),
            ("by = \"client\"", "since = \"6.x\"", 11, "versions like"),
            ("by = \"client\"", "fixed = [\"6.2\", \"6.1\"]", 11, "rising"),
            ("by = \"client\"", "commit = \"xyz\"", 11, "hexadecimal"),
            ("by = \"client\"", "severity = \"fatal\"", 11, "severity is"),
            ("BUG-X-1", "BUG-CVE-2025-39943", 10, "it needs no filter"),
            ("id = ", "id ", 3, ""),
        ] {
            let error = of(from, to);
            assert!(
                error.starts_with(&format!("line {line}: ")) && error.contains(said) && !error.contains('\n'),
                "{to}: {error}"
            );
        }
        assert!(
            read(&format!("{NEW}[[bug]]\n{}", NEW.split_once("[[bug]]\n").unwrap().1))
                .unwrap_err()
                .starts_with("line 13: BUG-X-1 is listed")
        );
        assert!(read("").unwrap_err().contains("format"));
    }
}
