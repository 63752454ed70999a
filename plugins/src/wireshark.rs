//! A plugin for Wireshark in one file of Lua: rules and fields from our tables, then the runtime of
//! `plugins/wireshark/`, whose files are concatenated. It runs in every Wireshark from 4.0 on, and shows the results of
//! the [engine](rdmascope_engine), a library that it loads.
//!
//! ```text
//!  rules, fields ─▶ R = { … }
//!  engine.lua  loads the engine, hands it frames      ports.lua  MPA on ports of SMB and NFS
//!  show.lua    fields, findings, missing layers       menu.lua   the report, what rules say
//! ```

use rdmascope_analyzer::finding::{Rule, explain};
use rdmascope_dissector::field::{Def, Fields, Kind, Values};
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_dissector::wire::smb2::Channel;
use rdmascope_dissector::wire::smb2::rdma_channel::{CryptoTransformFixed, RdmaTransformFixed, f as rdma};
use rdmascope_dissector::wire::smbd::BufferDescriptorV1;
use rdmascope_engine::facts;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Name of the file.
pub const FILE: &str = "rdmascope.lua";

/// The runtime, in its order.
const RUNTIME: [(&str, &str); 4] = [
    ("engine.lua", include_str!("../wireshark/engine.lua")),
    ("ports.lua", include_str!("../wireshark/ports.lua")),
    ("show.lua", include_str!("../wireshark/show.lua")),
    ("menu.lua", include_str!("../wireshark/menu.lua")),
];

/// Name of the engine's file.
pub fn engine_file() -> String {
    format!("{}rdmascope_engine{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

/// The engine that belongs to `program`: beside it, in cargo's folder, or in that of packages.
pub fn engine_of(program: &Path) -> Option<PathBuf> {
    let name = engine_file();
    let folder = program.parent()?;
    // of those that cargo made, the one that was made last
    let made = [folder.join(&name), folder.join("deps").join(&name)].into_iter().filter(|path| path.is_file());
    let newest = made.max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
    let packaged = || {
        ["../lib/rdmascope", "../lib64/rdmascope"]
            .map(|lib| folder.join(lib).join(&name))
            .into_iter()
            .find(|path| path.is_file())
    };
    newest.or_else(packaged).map(|path| path.canonicalize().unwrap_or(path))
}

/// The plugin. It looks for the engine beside itself, then at `engine`, then in the folder of packages.
pub fn lua(engine: Option<&Path>) -> String {
    let mut out = format!(
        "-- rdmascope {}: storage over RDMA in Wireshark 4.0 and later. Made by `rdmascope export wireshark`: do not \
            edit.\n\
         -- Lua 5.2 to 5.4. Put it into Wireshark's plugin folder, or run `tshark -X lua_script:rdmascope.lua`.\n\n\
         -- Where packages and a user's own folder have it, the first one stays.\n\
         if package.loaded[\"rdmascope.plugin\"] then return end\n\
         package.loaded[\"rdmascope.plugin\"] = true\n\
         local R = {{ version = \"{0}\" }}\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Some(path) = engine.and_then(Path::to_str) {
        let _ = writeln!(out, "R.engine = {}", quoted(path));
    }
    out.push('\n');
    rules(&mut out);
    fields(&mut out);
    layouts(&mut out);
    for (name, text) in RUNTIME {
        // a local of its own scope: Lua allows two hundred of them in one
        let _ = writeln!(out, "do -- {name}\n{}\nend\n", text.trim_end());
    }
    out
}

fn rules(out: &mut String) {
    out.push_str("R.rules = {\n");
    for rule in Rule::ALL {
        let row = rule.row();
        let [title, spec, text] = [row.title, row.spec, &explain(*rule)].map(quoted);
        let _ = writeln!(
            out,
            "    [\"{}\"] = {{ severity = \"{}\", title = {title}, spec = {spec}, explain = {text} }},",
            row.id,
            row.severity.name()
        );
    }
    out.push_str("}\n\n");
}

/// The fields of the engine's items, in its order.
fn fields(out: &mut String) {
    out.push_str("R.fields = {\n");
    for def in facts::fields() {
        let _ = write!(
            out,
            "    {{ name = \"{}\", label = {}, kind = \"{}\", base = \"{}\"",
            def.name,
            quoted(def.label),
            def.kind.wireshark(),
            def.base.wireshark()
        );
        if def.kind == Kind::Bool {
            let _ = write!(out, ", width = {}", def.width.max(8));
        }
        if def.mask != 0 {
            let _ = write!(out, ", mask = {:#x}", def.mask);
            // for a bit of a larger integer, Wireshark needs that integer
            if def.mask.trailing_zeros() > 0 {
                let _ = write!(out, ", scale = {:#x}", 1u64 << def.mask.trailing_zeros());
            }
        }
        if facts::is_of_others(def.name) {
            out.push_str(", lent = true");
        }
        if def.name.ends_with(".reply") {
            out.push_str(", answer = true");
        }
        if !def.values.is_empty() {
            out.push_str(", values = ");
            values(out, def.values);
        }
        out.push_str(" },\n");
    }
    out.push_str("}\n\n");
}

/// The place of a field in `R.fields`, from 1.
fn place(def: Def) -> usize {
    facts::fields().iter().position(|d| d.name == def.name).map_or(0, |n| n + 1)
}

/// Writes the structures that are decoded without an engine, with their fields: congestion notifications, and
/// `SMB2_RDMA_TRANSFORM`, \[MS-SMB2\] 2.2.43.
fn layouts(out: &mut String) {
    let _ = writeln!(out, "R.layouts = {{\n    channel = {}, cnp = {:#x},", Channel::RDMA_TRANSFORM.0, Opcode::CNP.0);
    for (name, fields) in [
        ("transform", <RdmaTransformFixed as Fields>::FIELDS),
        ("crypto", CryptoTransformFixed::FIELDS),
        ("descriptor", BufferDescriptorV1::FIELDS),
    ] {
        let [node, parts @ ..] = fields else { continue };
        let _ = write!(out, "    {name} = {{ node = {},", place(node));
        let mut at = 0;
        // bits follow the number that contains them
        for part in parts.iter().filter(|part| part.mask == 0) {
            let (length, last) = (part.kind.bits() / 8, part.name.rsplit('.').next().unwrap_or(""));
            let _ = write!(out, " {{ name = \"{last}\", field = {}, at = {at}, length = {length} }},", place(part));
            at += length;
        }
        let _ = write!(out, " length = {at}");
        if name == "crypto" {
            let _ = write!(out, ", signature = {}, nonce = {}", place(rdma::SIGNATURE), place(rdma::NONCE));
        }
        out.push_str(" },\n");
    }
    out.push_str("}\n\n");
}

fn values(out: &mut String, table: Values) {
    out.push('{');
    for (value, name) in table {
        let _ = write!(out, " [{value:#x}] = {},", quoted(name));
    }
    out.push_str(" }");
}

/// A string of Lua.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An error on installing the plugin.
#[derive(Debug, Error)]
pub enum InstallError {
    /// No folder was given, and none is known on this machine.
    #[error(
        "Wireshark's folder for your own files is not known here: name it with --dir (Wireshark shows it under Help, \
            About, Folders)"
    )]
    NoFolder,
    /// Something in or about a folder.
    #[error("{path}: {error}")]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The plugin was written here.
    Plugin(PathBuf),
    /// An existing plugin of ours was replaced.
    Replaced(PathBuf),
    /// The engine was written here.
    Engine(PathBuf),
    /// This file was removed.
    Removed(PathBuf),
    /// The program can be found here as a source of captures.
    Extcap(PathBuf),
}

/// Environment variables that determine where Wireshark keeps a user's files.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `WIRESHARK_CONFIG_DIR`
    pub configured: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`
    pub xdg: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
    /// `APPDATA`
    pub appdata: Option<PathBuf>,
}

impl Places {
    /// The places that the environment names.
    pub fn of_environment() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self {
            configured: path("WIRESHARK_CONFIG_DIR"),
            xdg: path("XDG_CONFIG_HOME"),
            home: path("HOME"),
            appdata: path("APPDATA"),
        }
    }

    /// The folder of plugins, and that of capture sources. Wireshark looks for the former in
    /// `~/.local/lib/wireshark/plugins` on Unix, for the latter in `extcap` beside them (from 4.4 on) and in its
    /// configuration folder.
    fn folders(&self) -> Option<(PathBuf, Vec<PathBuf>)> {
        if let Some(folder) = &self.configured {
            return Some((folder.join("plugins"), vec![folder.join("extcap")]));
        }
        if let (true, Some(appdata)) = (cfg!(windows), &self.appdata) {
            let folder = appdata.join("Wireshark");
            return Some((folder.join("plugins"), vec![folder.join("extcap")]));
        }
        let home = self.home.as_ref()?;
        let library = home.join(".local/lib/wireshark");
        let configuration = self.xdg.clone().unwrap_or_else(|| home.join(".config")).join("wireshark");
        Some((library.join("plugins"), vec![library.join("extcap"), configuration.join("extcap")]))
    }
}

/// Folders of plugins and of capture sources.
fn folders(places: &Places, folder: Option<&Path>) -> Result<(PathBuf, Vec<PathBuf>), InstallError> {
    match folder {
        Some(folder) => Ok((folder.join("plugins"), vec![folder.join("extcap")])),
        None => places.folders().ok_or(InstallError::NoFolder),
    }
}

/// Name of the link to the program.
const SOURCE: &str = if cfg!(windows) { "rdmascope-extcap.exe" } else { "rdmascope-extcap" };

/// Installs the plugin with its `engine`, and `program` as a source of captures, for the user's Wireshark. `folder` is
/// Wireshark's folder for the user's own files, if it is known.
///
/// # Errors
/// No folder is known, or one cannot be written to.
pub fn install(
    places: &Places,
    folder: Option<&Path>,
    program: &Path,
    engine: Option<&Path>,
) -> Result<Vec<Done>, InstallError> {
    let (plugins, sources) = folders(places, folder)?;
    let mut done = Vec::new();
    let make = |folder: &Path| {
        std::fs::create_dir_all(folder).map_err(|error| InstallError::Write { path: folder.to_owned(), error })
    };
    make(&plugins)?;
    let path = plugins.join(FILE);
    let replaced = path.exists();
    std::fs::write(&path, lua(None)).map_err(|error| InstallError::Write { path: path.clone(), error })?;
    done.push(if replaced { Done::Replaced(path) } else { Done::Plugin(path) });
    if let Some(engine) = engine {
        let path = plugins.join(engine_file());
        replace(engine, &path).map_err(|error| InstallError::Write { path: path.clone(), error })?;
        done.push(Done::Engine(path));
    }
    for folder in sources {
        make(&folder)?;
        let path = folder.join(SOURCE);
        link(program, &path).map_err(|error| InstallError::Write { path: path.clone(), error })?;
        done.push(Done::Extcap(path));
    }
    Ok(done)
}

/// Copies a library beside its new place and renames it: a running Wireshark keeps the one that it loaded.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside)?;
    std::fs::rename(&beside, to)
}

/// Removes the files of [`install`]. On Unix, a capture source is removed only if it is a link, since other files are
/// not ours.
///
/// # Errors
/// No folder is known, or something cannot be removed.
pub fn remove(places: &Places, folder: Option<&Path>) -> Result<Vec<Done>, InstallError> {
    let (plugins, sources) = folders(places, folder)?;
    let is_link =
        |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|m| cfg!(windows) || m.file_type().is_symlink());
    let files = [plugins.join(FILE), plugins.join(engine_file())].into_iter().filter(|path| path.is_file());
    let links = sources.into_iter().map(|folder| folder.join(SOURCE)).filter(|path| is_link(path));
    let mut done = Vec::new();
    for path in files.chain(links) {
        std::fs::remove_file(&path).map_err(|error| InstallError::Write { path: path.clone(), error })?;
        done.push(Done::Removed(path));
    }
    Ok(done)
}

/// Result of loading a plugin in the tshark of this machine, with tshark's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// No tshark was found.
    NoTshark,
    /// It loads, and its engine analyzes a frame correctly.
    Analyzes(String),
    /// It loads, without an engine.
    Decodes(String),
    /// It does not load; with the error message.
    Not(String, String),
}

/// Runs tshark over a capture of one frame, a packet of RoCEv2.
pub fn works(plugin: &Path) -> Tried {
    use std::process::Command;
    let Ok(version) = Command::new("tshark").arg("--version").output() else { return Tried::NoTshark };
    let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or("tshark").to_owned();
    let name = format!("rdmascope-{}.pcap", std::process::id());
    let capture = plugin.with_file_name(name);
    if let Err(e) = std::fs::write(&capture, one_frame()) {
        return Tried::Not(version, e.to_string());
    }
    // loaded by its path: automatic loading depends on the user who starts Wireshark
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", plugin.display())).arg("-r").arg(&capture);
    let output = tshark
        .args(["-T", "fields", "-e", "frame.number", "-e", "rdmascope.connection"])
        .env("WIRESHARK_CONFIG_DIR", "/nonexistent")
        .output();
    let _ = std::fs::remove_file(&capture);
    match output {
        Err(e) => Tried::Not(version, e.to_string()),
        Ok(output) if !output.status.success() => {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            Tried::Not(version, message.lines().last().unwrap_or_default().to_owned())
        }
        Ok(output) => match String::from_utf8_lossy(&output.stdout).trim_end() {
            "1\t1" => Tried::Analyzes(version),
            _ => Tried::Decodes(version),
        },
    }
}

/// A capture of one RDMA Send on UDP port 4791.
fn one_frame() -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    frame.extend([0xc0, 0, 0x12, 0xb7, 0, 28, 0, 0]);
    frame.extend([4, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1]);
    frame.extend([0; 8]);
    let length = (frame.len() as u32).to_le_bytes();
    let head = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    [&head[..], &[0; 8], &length, &length, &frame].concat()
}

#[cfg(unix)]
fn link(program: &Path, path: &Path) -> io::Result<()> {
    // only a link is ours to replace
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_symlink() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "is there, and is not a link of rdmascope's making",
            ));
        }
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, path)
}

#[cfg(not(unix))]
fn link(program: &Path, path: &Path) -> io::Result<()> {
    std::fs::copy(program, path).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_that_the_runtime_names_is_there_and_no_rule_is() {
        let known: BTreeSet<&str> = facts::fields().iter().map(|def| def.name).collect();
        let mut lines = 0;
        for (file, text) in RUNTIME {
            lines += text.lines().count();
            for word in text.split('"').skip(1).step_by(2) {
                assert!(Rule::from_id(word).is_none(), "{file} names the rule {word}: the engine judges");
            }
            for piece in text.split("== \"rdmascope.").skip(1).chain(text.split("(\"rdmascope.").skip(1)) {
                let name = format!("rdmascope.{}", piece.split(['"', '\'', ' ']).next().unwrap_or(""));
                assert!(known.contains(&*name) || name.ends_with('.'), "{file} names the field {name}");
            }
        }
        assert!((300..900).contains(&lines), "{lines} lines of Lua");
    }

    #[test]
    fn the_fields_that_users_filter_by_are_there() {
        let text = lua(None);
        for name in [
            "credits.client",
            "credits.server",
            "stall",
            "exchange",
            "exchange.request",
            "exchange.reply",
            "exchange.time",
        ] {
            assert!(text.contains(&format!("{{ name = \"rdmascope.{name}\"")), "{name}");
        }
        for name in [
            "key.state",
            "finding.id",
            "finding.severity",
            "finding.section",
            "finding.by",
            "finding.text",
            "mirror",
            "mirror.session",
        ] {
            assert!(text.contains(&format!("{{ name = \"rdmascope.{name}\"")), "{name}");
        }
        for name in [
            "connection",
            "retransmission",
            "early",
            "cnp",
            "finding.certainty",
            "session",
            "session.channel",
            "episode",
        ] {
            assert!(text.contains(&format!("{{ name = \"rdmascope.{name}\"")), "{name}");
        }
    }

    #[test]
    fn strings_of_lua_end_where_they_should() {
        assert_eq!(quoted("a \"b\" \\ c\nd"), "\"a \\\"b\\\" \\\\ c\\nd\"");
    }

    #[cfg(unix)]
    #[test]
    fn it_is_installed_where_wireshark_looks_and_nothing_else_is_touched() {
        let home = tempfile::tempdir().unwrap();
        let places = Places { home: Some(home.path().to_owned()), ..Places::default() };
        let program = Path::new("/usr/bin/rdmascope");
        let plugin = home.path().join(".local/lib/wireshark/plugins/rdmascope.lua");
        let sources = [
            home.path().join(".local/lib/wireshark/extcap/rdmascope-extcap"),
            home.path().join(".config/wireshark/extcap/rdmascope-extcap"),
        ];
        let extcap = sources.clone().map(Done::Extcap);
        let library = home.path().join("library.so");
        std::fs::write(&library, "code").unwrap();
        let engine = plugin.with_file_name(engine_file());
        let expected = |first| [vec![first, Done::Engine(engine.clone())], extcap.to_vec()].concat();
        assert_eq!(install(&places, None, program, Some(&library)).unwrap(), expected(Done::Plugin(plugin.clone())));
        assert_eq!(install(&places, None, program, Some(&library)).unwrap(), expected(Done::Replaced(plugin.clone())));
        assert_eq!(std::fs::read_to_string(&plugin).unwrap(), lua(None));
        assert_eq!(std::fs::read_to_string(&engine).unwrap(), "code");
        assert_eq!(std::fs::read_link(&sources[0]).unwrap(), program);
        std::fs::remove_file(&sources[0]).unwrap();
        std::fs::write(&sources[0], "mine").unwrap();
        assert!(
            matches!(install(&places, None, program, None), Err(InstallError::Write { path, .. }) if path == sources[0])
        );
        assert_eq!(std::fs::read_to_string(&sources[0]).unwrap(), "mine");
        assert!(matches!(install(&Places::default(), None, program, None), Err(InstallError::NoFolder)));
        let removed = remove(&places, None).unwrap();
        assert_eq!(removed, [plugin, engine, sources[1].clone()].map(Done::Removed));
        assert_eq!(std::fs::read_to_string(&sources[0]).unwrap(), "mine", "what is not ours stays");
        assert_eq!(remove(&places, None).unwrap(), []);
    }
}
