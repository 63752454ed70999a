//! The C interface: `include/rdmascope.h`. Nothing unwinds out of it: a panic is reported as [`FAILED`], and the engine answers nothing more.
//!
//! What callers have to keep to stands at the head of each function; it is what C always asks for: pointers that are valid, or null where
//! that is allowed, and one thread at a time.
#![allow(unsafe_code)]

use crate::engine::{Engine, Error, Frame, Options};
use crate::{INTERFACE, VERSION, facts};
use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// All is well.
pub const OK: c_int = 0;
/// A null pointer, a size of another version, or keys that cannot be read.
pub const INVALID: c_int = -1;
/// This frame was not fed, or there is no such message.
pub const UNKNOWN: c_int = -2;
/// What was said of this frame found no room.
pub const NOT_KEPT: c_int = -3;
/// A defect of the engine, which can only be closed now.
pub const FAILED: c_int = -4;

/// What C holds.
#[derive(Debug)]
pub struct Handle {
    engine: Engine,
    failed: bool,
    error: CString,
    /// The fields that Lua is handed, by their places; `None` for all.
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

/// Names, types and labels of the fields of items, a line each.
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) fn fields() -> &'static str {
    &FIELDS
}

/// The words of a panic.
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

    /// Does something with the engine, unless it failed before.
    pub(crate) fn guarded<T>(&mut self, call: impl FnOnce(&mut Engine) -> Result<T, Error>) -> Result<T, c_int> {
        if self.failed {
            return Err(FAILED);
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.engine))) {
            Ok(Ok(value)) => {
                self.error = CString::default();
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

/// A buffer on its way to C.
type Out = (*const u8, usize);

/// Calls, and hands out what comes.
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
/// `engine` is null, or came of `rdmascope_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_close(engine: *mut Handle) {
    if engine.is_null() {
        return;
    }
    // SAFETY: the caller says that it came of `rdmascope_open`, where it was a box, and that this is the last we hear of it
    let handle = unsafe { Box::from_raw(engine) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

/// See `rdmascope.h`.
///
/// # Safety
/// The pointers are null, or valid for what they point to; `frame` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmascope_frame(engine: *mut Handle, frame: *const CFrame, facts: *mut *const u8, length: *mut usize) -> c_int {
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
pub unsafe extern "C" fn rdmascope_facts(engine: *mut Handle, number: u64, facts: *mut *const u8, length: *mut usize) -> c_int {
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
    // SAFETY: null is refused, and the caller says that a status is there otherwise; its size is looked at before anything else
    if status.is_null() || unsafe { (*status).size } != size_of::<CStatus>() {
        return INVALID;
    }
    match handle.guarded(|engine| Ok(engine.status())) {
        Ok(is) => {
            let crate::Status { frames, last, memory, not_kept, messages_dropped } = is;
            // SAFETY: not null, of our size, and the caller says that it may be written to
            unsafe { *status = CStatus { size: size_of::<CStatus>(), frames, last, memory, not_kept, messages_dropped } };
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
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    #[test]
    fn a_panic_is_told_and_ends_the_engine_and_not_the_program() {
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
            let mut options =
                COptions { size: 3, memory_max: 0, messages_max: 0, keys: c"nonsense\n".as_ptr(), keys_length: 9, unchecked: 0 };
            assert_eq!(rdmascope_open(&options, &mut engine), INVALID, "a size of another version");
            options.size = size_of::<COptions>();
            assert_eq!(rdmascope_open(&options, &mut engine), INVALID, "keys that are none");
            assert_eq!(rdmascope_open(null(), &mut engine), OK);
            assert_eq!(rdmascope_frame(engine, null(), &mut bytes, &mut length), INVALID);
            let mut frame =
                CFrame { size: size_of::<CFrame>(), number: 1, time_ns: 0, link_type: -1, wire_length: 0, bytes: null(), length: 5 };
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
