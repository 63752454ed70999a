//! The floors inside of each crate: no modules that import each other in a circle. Read from the sources, so that the
//! drawing in ARCHITECTURE.md stays true.
//!
//! The modules of one folder are checked against each other, at every depth: an import from anywhere below `a` by
//! anything below `b` counts as `b → a`. A folder and the files in it are one unit, so a file may use declarations of
//! its own `mod.rs`. Re-exported names (`pub use`) are followed to their declaration. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Accepted circles: the folder, the modules in it that import each other, and the reason. The list must get shorter:
/// any other circle is an error, and so is a row without a circle.
const CIRCLES: &[(&str, &[&str], &str)] = &[(
    "dissector/wire",
    &["mount", "nfs", "nfsacl", "nlm", "portmap", "rpc"],
    "RPC and the programs that it carries: the call names the program that reads the rest, and each program reads \
        RPC's own types",
)];

/// Floors beyond that: a crate's folder, modules at its root, others there that they do not import, and the reason.
const FLOORS: &[(&str, &[&str], &[&str], &str)] = &[(
    "analyzer",
    &["flow", "memory", "messages", "upper"],
    &["connection", "pipeline"],
    "layers of a connection do not see the shell around them",
)];

type Segments = Vec<String>;

/// One file.
#[derive(Debug, Default)]
struct Module {
    /// Every path that the file writes, from the crate's root.
    uses: BTreeSet<Segments>,
    /// Names that `use` brings into scope, with their paths.
    names: BTreeMap<String, Segments>,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|p| p.join("Cargo.lock").exists())
        .expect("the workspace")
        .to_path_buf()
}

/// The folders with a crate's sources, below the workspace.
fn crates(root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's Cargo.toml");
    let members = text.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    members
        .split(',')
        .map(|m| m.trim().trim_matches('"'))
        .filter(|m| !m.is_empty())
        .map(|m| root.join(m).join("src"))
        .collect()
}

/// All modules of a crate by their path. The root is the empty path.
fn modules(src: &Path) -> BTreeMap<Segments, Module> {
    let mut files = Vec::new();
    let mut skipped = BTreeSet::new();
    find(src, &mut Vec::new(), &mut files, &mut skipped);
    let known: BTreeSet<Segments> = files.iter().map(|(path, _)| path.clone()).collect();
    let mut out: BTreeMap<Segments, Module> = BTreeMap::new();
    for (path, text) in &files {
        if (0..=path.len()).any(|n| skipped.contains(&path[..n])) {
            continue;
        }
        // lib.rs and main.rs are both the root
        scan(path, text, &known, out.entry(path.clone()).or_default());
    }
    out
}

/// Files below a folder as module paths and texts without comments and tests, and the modules that are declared for
/// tests only.
fn find(folder: &Path, at: &mut Segments, files: &mut Vec<(Segments, String)>, skipped: &mut BTreeSet<Segments>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).expect("sources").flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            at.push(stem);
            find(&path, at, files, skipped);
            at.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = without_tests(&without_comments(&fs::read_to_string(&path).expect("a source file is text")));
            let mut module = at.clone();
            if !matches!(stem.as_str(), "lib" | "main" | "mod") {
                module.push(stem);
            }
            for name in text.1 {
                let mut child = module.clone();
                child.push(name);
                skipped.insert(child);
            }
            files.push((module, text.0));
        }
    }
}

/// The text with comments, strings and characters blanked.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('/')) => {
                while i < chars.len() && chars[i] != '\n' {
                    i += 1;
                }
            }
            ('/', Some('*')) => {
                while i < chars.len() && !(chars[i] == '*' && chars.get(i + 1) == Some(&'/')) {
                    i += 1;
                }
                i += 2;
            }
            ('r', Some('"' | '#')) if i == 0 || !chars[i - 1].is_alphanumeric() => {
                let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
                if chars.get(i + 1 + hashes) == Some(&'"') {
                    i += 2 + hashes;
                    while i < chars.len()
                        && !(chars[i] == '"'
                            && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes)
                    {
                        i += 1;
                    }
                    i += 1 + hashes;
                } else {
                    out.push('r');
                    i += 1;
                }
                out.push(' ');
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && chars[i] != '"' {
                    i += if chars[i] == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push_str("\"\"");
            }
            // a character, not a lifetime
            ('\'', Some('\\')) => {
                i += 2;
                while i < chars.len() && chars[i] != '\'' {
                    i += 1;
                }
                i += 1;
            }
            ('\'', Some(_)) if chars.get(i + 2) == Some(&'\'') => i += 3,
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// The text without modules that are for tests only, and the names of those that are files of their own.
fn without_tests(text: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut out, mut names, mut rest) = (String::new(), Vec::new(), text);
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        rest = &rest[at + MARK.len()..];
        let head: String = rest.chars().take_while(|c| *c != '{' && *c != ';').collect();
        let words: Vec<&str> = head.split_whitespace().collect();
        if let Some(place) = words.iter().position(|w| *w == "mod")
            && rest[head.len()..].starts_with(';')
        {
            names.extend(words.get(place + 1).map(|w| (*w).to_owned()));
            rest = &rest[head.len()..];
            continue;
        }
        // an item in braces, or one that ends with a semicolon
        let mut depth = 0;
        let end = rest.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = &rest[end.map_or(rest.len(), |(i, c)| i + c.len_utf8())..];
    }
    out.push_str(rest);
    (out, names)
}

fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if c.is_alphabetic() || c == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        if !c.is_whitespace() {
            out.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    out
}

/// Takes the paths of one file.
fn scan(module: &[String], text: &str, known: &BTreeSet<Segments>, into: &mut Module) {
    let tokens = tokens(text);
    // depths of braces at which modules inside of the file began
    let (mut depth, mut inline) = (0, Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        match tokens[i] {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                }
            }
            "mod" if tokens.get(i + 2) == Some(&"{") => {
                inline.push(depth);
                depth += 1;
                i += 3;
                continue;
            }
            "use" => {
                let mut found = Vec::new();
                i = tree(&tokens, i + 1, &mut Vec::new(), &mut found);
                for (path, name) in found {
                    let Some(path) = absolute(module, inline.len(), &path, known) else { continue };
                    if inline.is_empty() {
                        into.names.insert(name, path.clone());
                    }
                    into.uses.insert(path);
                }
                continue;
            }
            // a path in the code, not the rest of one
            "crate" | "super" | "self" if i == 0 || !matches!(tokens[i - 1], "::" | "$") => {
                let mut path = vec![tokens[i]];
                while tokens.get(i + 1) == Some(&"::")
                    && tokens.get(i + 2).is_some_and(|t| t.starts_with(|c: char| c.is_alphabetic() || c == '_'))
                {
                    path.push(tokens[i + 2]);
                    i += 2;
                }
                if path.len() > 1 {
                    into.uses.extend(absolute(module, inline.len(), &path, known));
                }
            }
            _ => {}
        }
        i += 1;
    }
}

/// The paths of a `use`, each with the name that it brings into scope. Returns the position of the next token.
fn tree<'t>(
    tokens: &[&'t str],
    mut i: usize,
    head: &mut Vec<&'t str>,
    found: &mut Vec<(Vec<&'t str>, String)>,
) -> usize {
    let depth = head.len();
    loop {
        match tokens.get(i).copied() {
            Some("{") => {
                i += 1;
                while tokens.get(i).is_some_and(|t| *t != "}") {
                    i = tree(tokens, i, head, found);
                    if tokens.get(i) == Some(&",") {
                        i += 1;
                    }
                }
                head.truncate(depth);
                return i + 1;
            }
            Some("::") => i += 1,
            Some("*") => {
                found.push((head.clone(), "*".to_owned()));
                head.truncate(depth);
                return i + 1;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                // `self` at the end of a list means the path before it
                if word != "self" || head.is_empty() {
                    head.push(word);
                }
                i += 1;
                if tokens.get(i) != Some(&"::") {
                    let mut name = head.last().copied().unwrap_or_default();
                    if tokens.get(i) == Some(&"as") {
                        name = tokens.get(i + 1).copied().unwrap_or_default();
                        i += 2;
                    }
                    found.push((head.clone(), name.to_owned()));
                    head.truncate(depth);
                    return i;
                }
            }
            _ => {
                head.truncate(depth);
                return i + 1;
            }
        }
    }
}

/// A path from the crate's root; `None` for other crates.
fn absolute(module: &[String], inline: usize, path: &[&str], known: &BTreeSet<Segments>) -> Option<Segments> {
    let owned = |rest: &[&str]| rest.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    match path.first().copied()? {
        "crate" => Some(owned(&path[1..])),
        "self" => Some([module.to_vec(), owned(&path[1..])].concat()),
        "super" => {
            let ups = path.iter().take_while(|s| **s == "super").count();
            let up = ups.saturating_sub(inline);
            Some([module[..module.len().checked_sub(up)?].to_vec(), owned(&path[ups..])].concat())
        }
        first => {
            let mut child = module.to_vec();
            child.push(first.to_owned());
            known.contains(&child).then(|| [module.to_vec(), owned(path)].concat())
        }
    }
}

/// The module in which the item at this path is declared, as far as the sources show it.
fn declared_in(path: &[String], modules: &BTreeMap<Segments, Module>) -> Segments {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let deepest = (0..=path.len()).rev().find(|n| modules.contains_key(&path[..*n])).unwrap_or(0);
        let Some(next) = path.get(deepest).and_then(|name| modules.get(&path[..deepest])?.names.get(name)) else {
            return path[..deepest].to_vec();
        };
        let onward = [next.clone(), path[deepest + 1..].to_vec()].concat();
        if onward == path {
            return path[..deepest].to_vec();
        }
        path = onward;
    }
    path
}

/// Imports between the modules of each folder, each with one file and path as evidence.
fn edges(modules: &BTreeMap<Segments, Module>) -> BTreeMap<Segments, BTreeMap<(String, String), String>> {
    let mut folders: BTreeMap<Segments, BTreeMap<(String, String), String>> = BTreeMap::new();
    for (from, module) in modules {
        for path in &module.uses {
            let to = declared_in(path, modules);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                let shown = format!("{} uses {}", from.join("::"), path.join("::"));
                folders.entry(from[..common].to_vec()).or_default().entry((a.clone(), b.clone())).or_insert(shown);
            }
        }
    }
    folders
}

/// Modules that reach each other, of more than one.
fn circles(edges: &BTreeMap<(String, String), String>) -> BTreeSet<BTreeSet<String>> {
    let reach = |start: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start.clone()]);
        while let Some(at) = next.pop() {
            for (_, to) in edges.keys().filter(|(from, _)| *from == at) {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let all: BTreeSet<&String> = edges.keys().flat_map(|(a, b)| [a, b]).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> = all.iter().map(|m| (*m, reach(m))).collect();
    let circle = |m: &String| {
        all.iter().filter(|o| reached[m].contains(**o) && reached[*o].contains(m)).map(|o| (*o).clone()).collect()
    };
    all.iter().map(|m| circle(m)).filter(|c: &BTreeSet<String>| c.len() > 1).collect()
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let root = workspace();
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for src in crates(&root) {
        let name = src
            .parent()
            .and_then(|p| p.strip_prefix(&root).ok())
            .expect("a crate lies in the workspace")
            .display()
            .to_string();
        let modules = modules(&src);
        assert!(modules.len() > 3, "{name}: only {} modules were found", modules.len());
        for (folder, edges) in edges(&modules) {
            let place = [vec![name.clone()], folder].concat().join("/");
            for circle in circles(&edges) {
                let is_known = |members: &[&str]| circle.iter().all(|m| members.contains(&m.as_str()));
                if let Some(row) = CIRCLES.iter().position(|(at, members, _)| *at == place && is_known(members)) {
                    needed.insert(row);
                    continue;
                }
                wrong.push(format!("{place}: {circle:?}"));
                let inside = edges.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
                wrong.extend(inside.map(|((a, b), shown)| format!("    {a} -> {b}: {shown}")));
            }
        }
    }
    let rows = CIRCLES.iter().enumerate().filter(|(row, _)| !needed.contains(row));
    wrong.extend(rows.map(|(_, (at, ..))| format!("{at}: a row of CIRCLES has no circle any more: take it off")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn modules_keep_to_their_floors() {
    let root = workspace();
    let mut wrong = Vec::new();
    for (name, below, above, reason) in FLOORS {
        let modules = modules(&root.join(name).join("src"));
        for module in below.iter().chain(*above) {
            assert!(modules.contains_key(&vec![(*module).to_owned()]), "{name}: there is no module {module}");
        }
        let edges = edges(&modules).remove(&Segments::new()).unwrap_or_default();
        let up = edges.iter().filter(|((a, b), _)| below.contains(&a.as_str()) && above.contains(&b.as_str()));
        wrong.extend(up.map(|(_, shown)| format!("{name}: {shown} ({reason})")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_of_the_papers_lead_to_files() {
    let root = workspace();
    let folders = crates(&root).into_iter().filter_map(|src| src.parent().map(Path::to_path_buf));
    let papers = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(|name| root.join(name)).into_iter();
    let mut wrong = Vec::new();
    for paper in papers.chain(folders.map(|folder| folder.join("README.md")).filter(|paper| paper.exists())) {
        let text = fs::read_to_string(&paper).expect("a paper is text");
        let folder = paper.parent().expect("it lies in a folder");
        for rest in text.split("](").skip(1) {
            let link = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if !link.is_empty() && !link.contains(':') && !folder.join(link).exists() {
                wrong.push(format!("{}: {link}", paper.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_reading_of_sources_finds_what_is_there() {
    let text = "// use crate::a;\nuse crate::{b::C, d::{self, e as f}};\nconst T: &str = \"crate::not\";\nmod inner { \
        use super::super::g; }\n\
                fn x() { super::h::y('{') }\n#[cfg(test)]\nmod tests { use crate::only_here; }\npub use child::Thing;\n";
    let known: BTreeSet<Segments> = [vec!["m".to_owned(), "child".to_owned()]].into();
    let mut module = Module::default();
    scan(&["m".to_owned()], &without_tests(&without_comments(text)).0, &known, &mut module);
    let shown: Vec<String> = module.uses.iter().map(|p| p.join("::")).collect();
    assert_eq!(shown, ["b::C", "d", "d::e", "g", "h::y", "m::child::Thing"]);
    assert_eq!(module.names["f"].join("::"), "d::e");
    assert_eq!(without_tests("a #[cfg(test)]\nmod t;\nb").1, ["t"]);
}
