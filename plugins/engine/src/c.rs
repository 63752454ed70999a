//! The C interface: `include/rdmascope.h`. No panic unwinds through it: it is reported as [`FAILED`], and the engine
//! refuses further calls.
//!
//! The doc of each function lists its requirements. They are the usual ones of C: pointers are valid, or null where
//! allowed, and one thread uses an engine at a time.
#![allow(unsafe_code)]

use crate::engine::{Engine, Error, Frame, Options};
use crate::{INTERFACE, VERSION, facts};
use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// The call succeeded.
pub const OK: c_int = 0;
/// A null pointer, a size of another version, or keys that cannot be read.
pub const INVALID: c_int = -1;
/// This frame was not fed, or there is no such message.
pub const UNKNOWN: c_int = -2;
/// The facts of this frame were not kept: the memory limit was reached.
pub const NOT_KEPT: c_int = -3;
/// A defect of the engine, which can then only be closed.
pub const FAILED: c_int = -4;

/// The engine behind the opaque pointer of the C interface.
#[derive(Debug)]
pub struct Handle {
    engine: Engine,
    failed: bool,
    error: CString,
    /// The fields to pass to Lua, by index; `None` for all.
    #[cfg_attr(not(unix), allow(dead_code))]
    pub(crate) wanted: Option<Vec<bool>>,
}

/// `rdmascope_options`
#[derive(Debug)]
#[repr(C)]
pub struct COptions {
    size: usize,
    memory_max: u64,
    messages_max: u64,
    keys: *const c_char,
    keys_length: usize,
    unchecked: u32,
}

/// `rdmascope_frame_t`
#[derive(Debug)]
#[repr(C)]
pub struct CFrame {
    size: usize,
    number: u64,
    time_ns: i64,
    link_type: i32,
    wire_length: u32,
    bytes: *const u8,
    length: usize,
}

/// `rdmascope_status_t`
#[derive(Debug)]
#[repr(C)]
pub struct CStatus {
    size: usize,
    frames: u64,
    last: u64,
    memory: u64,
    not_kept: u64,
    messages_dropped: u64,
}

static FIELDS: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    for def in facts::fields() {
        let _ = writeln!(text, "{}\t{}\t{}", def.name, def.kind.wireshark(), def.label);
    }
    text
});

/// Names, types and labels of the fields of items, one per line.
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) fn fields() -> &'static str {
    &FIELDS
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

impl Handle {
    pub(crate) fn new(options: Options) -> Result<Self, String> {
        match catch_unwind(AssertUnwindSafe(|| Engine::new(options))) {
            Ok(engine) => Ok(Self { engine: engine?, failed: false, error: CString::default(), wanted: None }),
            Err(panic) => Err(words(&*panic).to_owned()),
        }
    }

    /// Runs `act` with the engine, unless it failed before.
    pub(crate) fn guarded<T>(&mut self, call: impl FnOnce(&mut Engine) -> Result<T, Error>) -> Result<T, c_int> {
        if self.failed {
            return Err(FAILED);
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.engine))) {
            Ok(Ok(value)) => {
                // even an empty one is allocated
                if !self.error.is_empty() {
                    self.error = CString::default();
                }
                Ok(value)
            }
            Ok(Err(error)) => {
                self.error = CString::new(error.to_string()).unwrap_or_default();
                Err(match error {
                    Error::Unknown => UNKNOWN,
                    Error::NotKept => NOT_KEPT,
                })
            }
            Err(panic) => {
                self.failed = true;
                let text = format!("the engine failed: {}", words(&*panic)).replace('\0', " ");
                self.error = CString::new(text).unwrap_or_default();
                Err(FAILED)
            }
        }
    }

    #[cfg_attr(not(unix), allow(dead_code))]
    pub(crate) fn error(&self) -> &str {
        self.error.to_str().unwrap_or("")
    }
}

/// A buffer to be returned to C.
type Out = (*const u8, usize);

/// Calls `act` and returns its buffer.
///
/// # Safety
/// The pointers are null, or valid for what they point to, and nobody else uses the engine meanwhile.
unsafe fn hand_out(
    engine: *mut Handle,
    to: *mut *const u8,
    length: *mut usize,
    call: impl FnOnce(&mut Engine) -> Result<Out, Error>,
) -> c_int {
    if engine.is_null() || to.is_null() || length.is_null() {
        return INVALID;
    }
    // SAFETY: it is not null, and the caller says that it is an engine of ours that nobody else uses now
    let handle = unsafe { &mut *engine };
    let (code, (bytes, len)) = match handle.guarded(call) {
        Ok(out) => (OK, out),
        Err(code) => (code, (std::ptr::null(), 0)),
    };
    // SAFETY: both are not null, and the caller says that they may be written to
    unsafe {
        *to = bytes;
        *length = len;
    }
    code
}

fn out(bytes: &[u8]) -> Out {
    (bytes.as_ptr(), bytes.len())
}

/// The version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn rdmascope_interface() -> u32 {
    INTERFACE
}

/// The version of the engine, ended by a zero.
#[unsafe(no_mangle)]
pub extern "C" fn rdmascope_version() -> *const c_char {
    const _: () = assert!(!VERSION.is_empty());
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// See `rdmascope.h`.
///
/// # Safety
/// `length` is null, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_fields(length: *mut usize) -> *const c_char {
    if !length.is_null() {
        // SAFETY: the caller says that it may be written to
        unsafe { *length = FIELDS.len() };
    }
    FIELDS.as_ptr().cast()
}

/// See `rdmascope.h`.
///
/// # Safety
/// `options` is null, or points to options whose keys are readable; `engine` is null, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_open(options: *const COptions, engine: *mut *mut Handle) -> c_int {
    if engine.is_null() {
        return INVALID;
    }
    let mut wanted = Options::default();
    if !options.is_null() {
        // SAFETY: not null, and the caller says that options are there; their size is looked at before anything else
        let size = unsafe { (*options).size };
        if size != size_of::<COptions>() {
            return INVALID;
        }
        // SAFETY: as above, and the size is that of ours
        let given = unsafe { &*options };
        if given.memory_max > 0 {
            wanted.memory_max = given.memory_max;
        }
        if given.messages_max > 0 {
            wanted.messages_max = given.messages_max;
        }
        wanted.check_crc = given.unchecked == 0;
        if !given.keys.is_null() {
            // SAFETY: not null, and the caller says that so many bytes are there
            let keys = unsafe { std::slice::from_raw_parts(given.keys.cast::<u8>(), given.keys_length) };
            match std::str::from_utf8(keys) {
                Ok(keys) => keys.clone_into(&mut wanted.keys),
                Err(_) => return INVALID,
            }
        }
    }
    let Ok(handle) = Handle::new(wanted) else { return INVALID };
    // SAFETY: not null, and the caller says that it may be written to
    unsafe { *engine = Box::into_raw(Box::new(handle)) };
    OK
}

/// See `rdmascope.h`.
///
/// # Safety
/// `engine` is null, or was returned by `rdmascope_open` and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_close(engine: *mut Handle) {
    if engine.is_null() {
        return;
    }
    // SAFETY: the caller says that it came of `rdmascope_open`, where it was a box, and that this is the last we hear
    // of it
    let handle = unsafe { Box::from_raw(engine) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to; `frame` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_frame(
    engine: *mut Handle,
    frame: *const CFrame,
    facts: *mut *const u8,
    length: *mut usize,
) -> c_int {
    if frame.is_null() {
        return INVALID;
    }
    // SAFETY: not null, and the caller says that a frame is there; its size is looked at before anything else
    if unsafe { (*frame).size } != size_of::<CFrame>() {
        return INVALID;
    }
    // SAFETY: as above, and the size is that of ours
    let given = unsafe { &*frame };
    if given.bytes.is_null() && given.length > 0 {
        return INVALID;
    }
    let bytes = match given.length {
        0 => &[][..],
        // SAFETY: not null, and the caller says that so many bytes are there
        n => unsafe { std::slice::from_raw_parts(given.bytes, n) },
    };
    let frame = Frame {
        number: given.number,
        time_ns: given.time_ns,
        link_type: u16::try_from(given.link_type).ok(),
        wire_len: given.wire_length,
        bytes,
    };
    // SAFETY: the caller says so of all of them
    unsafe { hand_out(engine, facts, length, |engine| engine.frame(&frame).map(out)) }
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_facts(
    engine: *mut Handle,
    number: u64,
    facts: *mut *const u8,
    length: *mut usize,
) -> c_int {
    // SAFETY: the caller says so of all of them
    unsafe { hand_out(engine, facts, length, |engine| engine.facts(number).map(out)) }
}

/// See `rdmascope.h`.
///
/// # Safety
/// `engine` is null, or an engine that nobody else uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_settle(engine: *mut Handle, at_end: c_int) -> c_int {
    // SAFETY: null is refused, and the caller says that it is an engine otherwise
    let Some(handle) = (unsafe { engine.as_mut() }) else { return INVALID };
    match handle.guarded(|engine| {
        engine.settle(at_end != 0);
        Ok(())
    }) {
        Ok(()) => OK,
        Err(code) => code,
    }
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_report(engine: *mut Handle, text: *mut *const c_char, length: *mut usize) -> c_int {
    // SAFETY: the caller says so of all of them
    unsafe { hand_out(engine, text.cast(), length, |engine| Ok(out(engine.report().as_bytes()))) }
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_message(
    engine: *mut Handle,
    number: u64,
    index: u32,
    bytes: *mut *const u8,
    length: *mut usize,
) -> c_int {
    // SAFETY: the caller says so of all of them
    unsafe { hand_out(engine, bytes, length, |engine| engine.message(number, index).map(out).ok_or(Error::Unknown)) }
}

/// See `rdmascope.h`.
///
/// # Safety
/// `engine` is null, or an engine that nobody else uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_forget(engine: *mut Handle, number: u64) -> c_int {
    // SAFETY: null is refused, and the caller says that it is an engine otherwise
    let Some(handle) = (unsafe { engine.as_mut() }) else { return INVALID };
    match handle.guarded(|engine| {
        engine.forget(number);
        Ok(())
    }) {
        Ok(()) => OK,
        Err(code) => code,
    }
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to; `message` has as many bytes as it is said to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_smb_direct(
    engine: *mut Handle,
    message: *const u8,
    message_length: usize,
    facts: *mut *const u8,
    length: *mut usize,
) -> c_int {
    if message.is_null() {
        return INVALID;
    }
    // SAFETY: not null, and the caller says that so many bytes are there
    let message = unsafe { std::slice::from_raw_parts(message, message_length) };
    // SAFETY: the caller says so of all of them
    unsafe { hand_out(engine, facts, length, |engine| Ok(out(engine.smb_direct(message)))) }
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_status(engine: *mut Handle, status: *mut CStatus) -> c_int {
    // SAFETY: null is refused, and the caller says that it is an engine otherwise
    let Some(handle) = (unsafe { engine.as_mut() }) else { return INVALID };
    // SAFETY: null is refused, and the caller says that a status is there otherwise; its size is looked at before
    // anything else
    if status.is_null() || unsafe { (*status).size } != size_of::<CStatus>() {
        return INVALID;
    }
    match handle.guarded(|engine| Ok(engine.status())) {
        Ok(is) => {
            let crate::Status { frames, last, memory, not_kept, messages_dropped } = is;
            // SAFETY: not null, of our size, and the caller says that it may be written to
            unsafe {
                *status = CStatus { size: size_of::<CStatus>(), frames, last, memory, not_kept, messages_dropped }
            };
            OK
        }
        Err(code) => code,
    }
}

/// See `rdmascope.h`.
///
/// # Safety
/// `engine` is null, or an engine that nobody else uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_error(engine: *const Handle) -> *const c_char {
    // SAFETY: null is answered, and the caller says that it is an engine otherwise
    match unsafe { engine.as_ref() } {
        Some(handle) => handle.error.as_ptr(),
        None => c"no engine".as_ptr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::ffi::CStr;
    use std::io::Write as _;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};
    use std::ptr::{null, null_mut};

    /// A type of this file in C.
    fn in_c(rust: &str) -> String {
        if let Some(to) = rust.strip_prefix("*mut ") {
            return format!("{}*", in_c(to));
        } else if let Some(to) = rust.strip_prefix("*const ") {
            return format!("const {}*", in_c(to));
        }
        let names = [
            ("Handle", "rdmascope_engine "),
            ("COptions", "rdmascope_options "),
            ("CFrame", "rdmascope_frame_t "),
            ("CStatus", "rdmascope_status_t "),
            ("c_char", "char "),
            ("c_int", "int "),
            ("u8", "uint8_t "),
            ("u32", "uint32_t "),
            ("u64", "uint64_t "),
            ("usize", "size_t "),
        ];
        names.iter().find(|(name, _)| *name == rust).unwrap_or_else(|| panic!("{rust} in C")).1.to_owned()
    }

    /// The functions of this file as C declares them, by their names.
    fn declarations() -> BTreeMap<&'static str, String> {
        let code = include_str!("c.rs").split("#[cfg(test)]").next().unwrap();
        let functions = code.split("extern \"C\" fn ").skip(1).map(|text| text.split('{').next().unwrap());
        functions
            .map(|text| {
                let (name, rest) = text.split_once('(').unwrap();
                let (arguments, result) = rest.split_once(')').unwrap();
                let types = arguments
                    .split(',')
                    .filter_map(|argument| argument.split_once(':'))
                    .map(|(_, kind)| in_c(kind.trim()));
                let types: Vec<String> = types.collect();
                let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
                let result = result.trim().strip_prefix("->").map_or("void ".to_owned(), |kind| in_c(kind.trim()));
                (name, format!("{result}{name}({types});"))
            })
            .collect()
    }

    #[test]
    fn the_header_declares_what_is_here_and_nothing_else() {
        let header = include_str!("../include/rdmascope.h");
        let defined = header.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("#define RDMASCOPE_")?.split_once(' ')?;
            let number = rest.trim().split(' ').next()?.trim_matches(['(', ')']);
            let number =
                number.strip_prefix("0x").map_or_else(|| number.parse().ok(), |hex| i64::from_str_radix(hex, 16).ok());
            Some((name, number?))
        });
        let (kinds, flags) = (
            [
                facts::NONE,
                facts::UNSIGNED,
                facts::SIGNED,
                facts::BYTES,
                facts::TEXT,
                facts::TIME,
                facts::APART,
                facts::PLACED,
            ],
            [
                facts::AGAIN,
                facts::MPA,
                facts::SYN,
                facts::SETTLED,
                facts::FINDING,
                facts::DECODED,
                facts::HAS_FACTS,
                facts::NO_MPA,
            ],
        );
        let kinds = ["NONE", "UNSIGNED", "SIGNED", "BYTES", "TEXT", "TIME", "APART", "PLACED"].into_iter().zip(kinds);
        let flags = ["AGAIN", "MPA", "SYN", "SETTLED", "FINDING", "DECODED", "SAID", "NO_MPA"].into_iter().zip(flags);
        let codes =
            [("OK", OK), ("INVALID", INVALID), ("UNKNOWN", UNKNOWN), ("NOT_KEPT", NOT_KEPT), ("FAILED", FAILED)];
        let mut here: BTreeMap<&str, i64> = kinds.chain(flags).map(|(name, n)| (name, n.into())).collect();
        here.extend(codes.map(|(name, n)| (name, n.into())));
        here.extend([("INTERFACE", INTERFACE.into()), ("LAYOUT", facts::LAYOUT.into())]);
        assert_eq!(defined.collect::<BTreeMap<_, _>>(), here);
        let code = header.split("*/").map(|text| text.split("/*").next().unwrap()).collect::<String>();
        let names = code.split("rdmascope_").skip(1).filter_map(|text| text.split_once('(')).map(|(name, _)| name);
        let declared: BTreeSet<String> = names
            .filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
            .map(|name| format!("rdmascope_{name}"))
            .collect();
        assert_eq!(declared, declarations().into_keys().map(str::to_owned).collect());
    }

    #[test]
    fn c_finds_the_types_of_the_header_and_those_that_are_here_alike() {
        if Command::new("cc").arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "cc is missing");
            return;
        }
        // declared a second time, with the types that they have here: C allows that where both are the same
        let mut code = String::from("#include \"rdmascope.h\"\n");
        declarations().values().for_each(|line| code.push_str(&format!("{line}\n")));
        macro_rules! alike {
            ($rust:ident, $c:literal, $($field:ident)*) => {
                code.push_str(&format!("_Static_assert(sizeof({}) == {}, \"size\");\n", $c, size_of::<$rust>()));
                $(code.push_str(&format!(
                    "_Static_assert(offsetof({}, {}) == {}, \"place\");\n", $c, stringify!($field), offset_of!($rust, $field)
                ));)*
            };
        }
        alike!(COptions, "rdmascope_options", size memory_max messages_max keys keys_length unchecked);
        alike!(CFrame, "rdmascope_frame_t", size number time_ns link_type wire_length bytes length);
        alike!(CStatus, "rdmascope_status_t", size frames last memory not_kept messages_dropped);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-I"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"));
        let mut child = cc.arg("-").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}{code}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn a_panic_is_reported_and_ends_the_engine_and_not_the_program() {
        let mut handle = Handle::new(Options::default()).unwrap();
        assert_eq!(handle.guarded(|_| Ok(5)), Ok(5));
        assert_eq!(handle.guarded(|_| -> Result<u8, Error> { panic!("of the test") }), Err(FAILED));
        assert_eq!(handle.error(), "the engine failed: of the test");
        assert_eq!(handle.guarded(|_| Ok(5)), Err(FAILED));
    }

    #[test]
    fn what_is_null_or_of_another_size_is_refused() {
        let (mut engine, mut bytes, mut length) = (null_mut(), null(), 0);
        // SAFETY: pointers are null, or to what stands here
        unsafe {
            assert_eq!(rdmascope_open(null(), null_mut()), INVALID);
            let mut options = COptions {
                size: 3,
                memory_max: 0,
                messages_max: 0,
                keys: c"nonsense\n".as_ptr(),
                keys_length: 9,
                unchecked: 0,
            };
            assert_eq!(rdmascope_open(&options, &mut engine), INVALID, "a size of another version");
            options.size = size_of::<COptions>();
            assert_eq!(rdmascope_open(&options, &mut engine), INVALID, "keys that are none");
            assert_eq!(rdmascope_open(null(), &mut engine), OK);
            assert_eq!(rdmascope_frame(engine, null(), &mut bytes, &mut length), INVALID);
            let mut frame = CFrame {
                size: size_of::<CFrame>(),
                number: 1,
                time_ns: 0,
                link_type: -1,
                wire_length: 0,
                bytes: null(),
                length: 5,
            };
            assert_eq!(rdmascope_frame(engine, &frame, &mut bytes, &mut length), INVALID);
            frame.length = 0;
            assert_eq!(rdmascope_frame(engine, &frame, &mut bytes, &mut length), OK);
            assert_eq!(length, facts::HEAD, "nothing is said of a frame of no bytes");
            assert_eq!(rdmascope_facts(engine, 2, &mut bytes, &mut length), UNKNOWN);
            assert_eq!((bytes.is_null(), length), (true, 0));
            assert_eq!(CStr::from_ptr(rdmascope_error(engine)).to_str(), Ok("this frame was not fed"));
            assert_eq!(rdmascope_facts(null_mut(), 1, &mut bytes, &mut length), INVALID);
            assert_eq!(CStr::from_ptr(rdmascope_version()).to_str(), Ok(VERSION));
            rdmascope_close(engine);
            rdmascope_close(null_mut());
        }
    }
}
