//! The copy of the workspace in which the mutants are compiled.

use crate::places::{Kind, Mutated, Place, Source};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Folders that are not copied.
const NOT_COPIED: &[&str] = &["target", ".git", "analyzer/mutants"];
/// Folders that the tests only read.
const LINKED: &[&str] = &["samples"];
/// The tests that are run, beside unit tests.
const TESTS: &[&str] = &["rules", "given", "loss", "missed", "iwarp", "kernel", "episodes", "time", "cuts", "seeds"];
/// Rounds in which mutants that do not compile are left out.
const ROUNDS: usize = 12;

const RUNTIME: &str = include_str!("runtime.rs");

/// A mutant: one code in place of another.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its number in the binary.
    pub id: u32,
    /// The number of its place, by which it is recorded as reached.
    pub place: u32,
    pub kind: Kind,
    /// The file, below `analyzer/src`.
    pub file: String,
    pub line: usize,
    /// What it is called, whatever its line and number: file, function, code, mutant.
    pub name: String,
}

/// The copy.
pub struct Scratch {
    /// The copy.
    pub root: PathBuf,
    pub target: PathBuf,
    pub mutants: Vec<Mutant>,
    /// Operators that are not mutated, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// What Cargo said of the programs that it built.
    pub built: String,
}

/// A file with its places.
struct File {
    name: String,
    source: Source,
    /// Places that do not compile.
    unviable: BTreeSet<usize>,
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) { Ok(()) } else { fs::write(path, text) }
}

/// Copies a folder, but for files that are written mutated.
fn copy(origin: &Path, root: &Path, below: &Path, mutated: &[String]) -> io::Result<()> {
    fs::create_dir_all(root.join(below))?;
    for entry in fs::read_dir(origin.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let name = path.to_string_lossy().into_owned();
        if NOT_COPIED.iter().any(|n| *n == name || entry.file_name() == *n) || mutated.contains(&name) {
            continue;
        }
        let (from, to) = (origin.join(&path), root.join(&path));
        if LINKED.contains(&name.as_str()) {
            if to.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(&from, &to)?;
            }
        } else if entry.file_type()?.is_dir() {
            copy(origin, root, &path, mutated)?;
        } else if entry.file_type()?.is_file() {
            let bytes = if name == "analyzer/Cargo.toml" { without_benches(&fs::read_to_string(&from)?) } else { fs::read(&from)? };
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                fs::write(&to, bytes)?;
            }
        }
    }
    Ok(())
}

/// A manifest without its benches, whose dependencies take longer to build than all else.
fn without_benches(manifest: &str) -> Vec<u8> {
    let rest = manifest.split("\n\n").filter(|part| !part.starts_with("[[bench]]"));
    let lines = rest.map(|part| part.lines().filter(|line| !line.starts_with("criterion")).collect::<Vec<_>>().join("\n"));
    (lines.collect::<Vec<_>>().join("\n\n") + "\n").into_bytes()
}

fn sources(folder: &Path, below: &str, found: &mut Vec<String>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            sources(&entry.path(), &format!("{name}/"), found)?;
        } else if name.ends_with(".rs") {
            found.push(name);
        }
    }
    Ok(())
}

/// `*` stands for any text.
pub fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((first, rest)) => name
            .strip_prefix(first)
            .is_some_and(|name| (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| is_like(&name[at..], rest))),
    }
}

/// What the compiler's wrapper must know.
const FOLDER: &str = "RDMASCOPE_MUTANTS_FOLDER";
const PATTERNS: &str = "RDMASCOPE_MUTANTS_FILES";

/// The workspace that is copied.
fn origin() -> Result<PathBuf, String> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().map_err(|e| format!("workspace: {e}"))
}

/// The files that are mutated, and the places of them that are known not to compile.
fn load(origin: &Path, folder: &Path, patterns: &[String]) -> Result<Vec<File>, String> {
    let told = |e: io::Error| format!("sources: {e}");
    let mut names = Vec::new();
    sources(&origin.join("analyzer/src"), "", &mut names).map_err(told)?;
    let text = fs::read_to_string(folder.join("unviable")).unwrap_or_default();
    let unviable: BTreeSet<&str> = text.lines().collect();
    let mut files = Vec::new();
    for name in names.into_iter().filter(|name| patterns.iter().any(|p| is_like(name, p))) {
        let text = fs::read_to_string(origin.join("analyzer/src").join(&name)).map_err(told)?;
        let source = Source::new(text).map_err(|e| format!("{name}: {e}"))?;
        let mut file = File { name, source, unviable: BTreeSet::new() };
        let known = (0..file.source.places.len()).filter(|n| unviable.contains(place_name(&file, *n).as_str()));
        file.unviable = known.collect();
        files.push(file);
    }
    if files.is_empty() { Err("no file below analyzer/src has such a name".into()) } else { Ok(files) }
}

/// Writes the mutated files and what they call into the copy.
fn write_all(origin: &Path, root: &Path, files: &[File]) -> io::Result<Vec<Mutated>> {
    let source = root.join("analyzer/src");
    let (numbers, count) = numbers(files);
    let mut out = Vec::new();
    for (file, numbers) in files.iter().zip(&numbers) {
        let mutated = file.source.mutate(|index| numbers.get(&index).copied());
        write(&source.join(&file.name), &mutated.text)?;
        out.push(mutated);
    }
    let runtime = RUNTIME.replace("const COUNT: usize = 0;", &format!("const COUNT: usize = {count};"));
    write(&source.join("mutant.rs"), &runtime)?;
    let lib = fs::read_to_string(origin.join("analyzer/src/lib.rs"))?;
    write(&source.join("lib.rs"), &format!("#![allow(warnings)]\n{lib}\nmod mutant;\n"))?;
    Ok(out)
}

/// Cargo calls this program in place of the compiler: before the analyzer is compiled, the places that do not compile
/// are left out. `None` if it was called for something else.
pub fn wrapped() -> Option<Result<ExitCode, String>> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    let patterns: Vec<String> = std::env::var(PATTERNS).ok()?.lines().map(String::from).collect();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let compile = || -> Result<ExitCode, String> {
        let (compiler, rest) = arguments.split_first().ok_or("no compiler is given")?;
        if arguments.windows(2).any(|pair| pair[0] == "--crate-name" && pair[1] == "rdmascope_analyzer") {
            settle(&folder, &patterns, compiler, rest)?;
        }
        let status = Command::new(compiler).args(rest).status().map_err(|e| format!("compiler: {e}"))?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    };
    Some(compile())
}

/// Leaves out the places that do not compile, once for all crates that are made of these files.
fn settle(folder: &Path, patterns: &[String], compiler: &OsString, arguments: &[OsString]) -> Result<(), String> {
    let told = |e: io::Error| format!("mutated files: {e}");
    let lock = fs::File::create(folder.join("lock")).map_err(told)?;
    lock.lock().map_err(told)?;
    if folder.join("settled").exists() {
        return Ok(());
    }
    let origin = origin()?;
    let root = folder.join("tree");
    let mut files = load(&origin, folder, patterns)?;
    for round in 1..=ROUNDS {
        let mutated = write_all(&origin, &root, &files).map_err(told)?;
        // the same call, which writes no program
        let is_output = |a: &OsString| {
            a.to_str().is_some_and(|a| a.starts_with("--emit") || a.starts_with("--json") || a.starts_with("--error-format"))
        };
        let output = Command::new(compiler)
            .args(arguments.iter().filter(|a| !is_output(a)))
            .args(["--error-format", "short", "--emit", "metadata", "-o"])
            .arg(folder.join("check.rmeta"))
            .output()
            .map_err(|e| format!("compiler: {e}"))?;
        if output.status.success() {
            return fs::write(folder.join("settled"), "").map_err(told);
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut dropped = 0;
        for line in text.lines().filter(|line| line.contains(": error")) {
            let mut parts = line.splitn(4, ':');
            let (Some(path), Some(line), Some(column)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let (Ok(line), Ok(column)) = (line.parse::<usize>(), column.parse::<usize>()) else { continue };
            let Some(index) = files.iter().position(|f| path == format!("analyzer/src/{}", f.name)) else { continue };
            dropped += usize::from(drop_place(&mut files[index], &mutated[index], line, column));
        }
        let names: Vec<String> = files.iter().flat_map(|f| f.unviable.iter().map(|n| place_name(f, *n) + "\n")).collect();
        fs::write(folder.join("unviable"), names.concat()).map_err(told)?;
        eprintln!("round {round}: errors at {dropped} places, which are left out");
        if dropped == 0 {
            return Err(format!("the mutated code does not compile:\n{text}"));
        }
    }
    Err(format!("the mutated code does not compile after {ROUNDS} rounds"))
}

impl Scratch {
    /// Copies the workspace to a folder, puts the mutants of some files into the copy, and builds it with its tests.
    pub fn new(folder: &Path, patterns: &[String], build: bool) -> Result<Self, String> {
        let origin = origin()?;
        let mut scratch = Self {
            root: folder.join("tree"),
            target: folder.join("target"),
            mutants: Vec::new(),
            left_out: BTreeMap::new(),
            built: String::new(),
        };
        if build {
            let told = |e: io::Error| format!("copy of the workspace: {e}");
            let files = load(&origin, folder, patterns)?;
            let mutated = files.iter().map(|f| f.name.as_str()).chain(["lib.rs"]).map(|name| format!("analyzer/src/{name}"));
            copy(&origin, &scratch.root, Path::new(""), &mutated.collect::<Vec<_>>()).map_err(told)?;
            write_all(&origin, &scratch.root, &files).map_err(told)?;
            scratch.build(folder, patterns)?;
        }
        let files = load(&origin, folder, patterns)?;
        for file in &files {
            file.source.left_out.iter().for_each(|(why, n)| *scratch.left_out.entry(why).or_default() += n);
        }
        scratch.left_out.insert("does not compile", files.iter().map(|f| f.unviable.len()).sum());
        scratch.number(&files);
        Ok(scratch)
    }

    /// Builds the tests.
    fn build(&mut self, folder: &Path, patterns: &[String]) -> Result<(), String> {
        let _ = fs::remove_file(folder.join("settled"));
        let me = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        eprintln!("builds the mutated code and its tests");
        let output = Command::new("cargo")
            .args(["test", "--no-run", "--offline", "--lib", "--message-format", "short"])
            .args(["--package", "rdmascope-analyzer", "--package", "rdmascope-sim"])
            .args(TESTS.iter().flat_map(|name| ["--test", name]))
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .env("RUSTC_WORKSPACE_WRAPPER", me)
            .env(FOLDER, folder)
            .env(PATTERNS, patterns.join("\n"))
            .stderr(Stdio::piped())
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        self.built = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("the mutated code does not build:\n{}", self.built)) }
    }

    fn number(&mut self, files: &[File]) {
        let (numbers, _) = numbers(files);
        let mut same: HashMap<String, usize> = HashMap::new();
        for (file, numbers) in files.iter().zip(&numbers) {
            for (index, place) in file.source.places.iter().enumerate() {
                let first = numbers.get(&index).copied();
                for (n, mutant) in place.mutants.iter().enumerate() {
                    let mut name = format!("{}, {}: `{}` with {mutant}", file.name, place.function, shortened(&place.code));
                    let seen = same.entry(name.clone()).or_default();
                    *seen += 1;
                    if *seen > 1 {
                        name = format!("{name} ({seen})");
                    }
                    let Some(first) = first else { continue };
                    let (id, kind, line) = (first + n as u32, place.kind, place.line);
                    self.mutants.push(Mutant { id, place: first, kind, file: file.name.clone(), line, name });
                }
            }
        }
    }
}

fn shortened(code: &str) -> String {
    match code.char_indices().nth(96) {
        Some((at, _)) => format!("{}…", &code[..at]),
        None => code.into(),
    }
}

/// A place by file, function, code, and its number among those that are alike.
fn place_name(file: &File, index: usize) -> String {
    let place = &file.source.places[index];
    let same = |p: &&Place| (&p.function, &p.code, p.kind, &p.mutants) == (&place.function, &place.code, place.kind, &place.mutants);
    let before = file.source.places[..index].iter().filter(same).count();
    format!("{}, {}: {} {:?} {before}", file.name, place.function, place.code, place.mutants)
}

/// The numbers of the places of each file, and one more than the last of all.
fn numbers(files: &[File]) -> (Vec<HashMap<usize, u32>>, u32) {
    let mut next = 1;
    let mut out = Vec::new();
    for file in files {
        let mut of_file = HashMap::new();
        for (index, place) in file.source.places.iter().enumerate().filter(|(index, _)| !file.unviable.contains(index)) {
            of_file.insert(index, next);
            next += place.mutants.len() as u32;
        }
        out.push(of_file);
    }
    (out, next)
}

/// Leaves out the innermost place around an error; if there is none, those on its line.
fn drop_place(file: &mut File, mutated: &Mutated, line: usize, column: usize) -> bool {
    let start: usize = mutated.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let text = mutated.text[start..].lines().next().unwrap_or_default();
    let at = start + text.char_indices().nth(column - 1).map_or(text.len(), |(at, _)| at);
    let around = mutated.ranges.iter().filter(|(_, range)| range.contains(&at));
    let inner = around.min_by_key(|(_, range)| range.len()).map(|(index, _)| *index);
    let of_line = mutated.ranges.iter().filter(|(_, range)| range.start < start + text.len() && range.end > start).map(|(index, _)| *index);
    let chosen: Vec<usize> = inner.map_or_else(|| of_line.collect(), |inner| vec![inner]);
    chosen.into_iter().fold(false, |any, index| file.unviable.insert(index) || any)
}
