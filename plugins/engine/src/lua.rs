//! One function for Lua 5.2 to 5.4: `package.loadlib(path, "luaopen_rdmascope_engine")`. It calls the Lua of its host,
//! whose functions are looked up in the process by name: only those that are functions, and not macros, in all three
//! versions.
//!
//! | call | answer |
//! | --- | --- |
//! | `f("version")` | version |
//! | `f("fields")` | as `rdmascope_fields` |
//! | `f("open", memory_max, keys)` | a handle; or nil and why |
//! | `f("close", handle)` | |
//! | `f(handle, number, time, length, bytes, look, start)` | the next frame: layer * 256 + flags, then items: with `look` 2 those that are
//! wanted, with 3 all; or nil and why. In place of its bytes it may have Wireshark's `Tvb`, and then no length |
//! | `f("bytes", tvb)` | the bytes of a `Tvb`, and its length on the wire; nil if this Wireshark has no functions that tell them |
//! | `f(handle, number, look)` | the same for an earlier frame, with what is known by now |
//! | `f("settle", handle, at_end)` | the number of frames that it covers |
//! | `f("report", handle)` | the report as text |
//! | `f("message", handle, number, index)` | bytes, or nil |
//! | `f("smb_direct", handle, bytes)` | as a frame's |
//! | `f("forget", handle, number)` | |
//! | `f("asked")` | from the arguments of this tshark: our fields that they name, a line each; whether they name the protocol; whether no
//! field is shown; whether they name fields of what Wireshark may leave undecoded. Nil if there may be more |
//! | `f("want", handle, names)` | from now on, items of these fields are wanted, a line each; messages never are |
//! | `f("status", handle)` | frames, bytes remembered, frames not kept, messages dropped |
//!
//! An item is five values: field (from 1), depth, place in the frame (length * 2^32 + offset; or false), then its value
//! as two: number and false; text or bytes and false; seconds and nanoseconds; low and high 32 bits of a 64-bit
//! integer; of a message apart its number (from 0) and whether it misleads; false and false for nothing. A message of
//! SMB2 that is not apart has a place and no value.
//!
//! Handles are addresses: only a plugin that keeps them to itself, as ours does, can call this safely, as with any
//! library that is loaded.
#![allow(unsafe_code)]

use crate::asked::asked as asked_for;
use crate::c::{Handle, fields};
use crate::engine::{Frame, Options};
use crate::facts::Item;
use crate::{VERSION, facts};
use libloading::os::unix::Library;
use rdmascope_dissector::field::Kind;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// `lua_State`
#[derive(Debug)]
#[repr(C)]
struct State {
    _private: [u8; 0],
}

/// Functions of the Lua that loaded us. All have the same signature in Lua 5.2, 5.3 and 5.4 on 64-bit machines.
#[derive(Clone, Copy)]
struct Lua {
    gettop: unsafe extern "C" fn(*mut State) -> c_int,
    checkstack: unsafe extern "C" fn(*mut State, c_int) -> c_int,
    is_type: unsafe extern "C" fn(*mut State, c_int) -> c_int,
    tolstring: unsafe extern "C" fn(*mut State, c_int, *mut usize) -> *const c_char,
    tonumberx: unsafe extern "C" fn(*mut State, c_int, *mut c_int) -> f64,
    toboolean: unsafe extern "C" fn(*mut State, c_int) -> c_int,
    touserdata: unsafe extern "C" fn(*mut State, c_int) -> *mut c_void,
    pushnil: unsafe extern "C" fn(*mut State),
    pushnumber: unsafe extern "C" fn(*mut State, f64),
    pushinteger: unsafe extern "C" fn(*mut State, isize),
    pushboolean: unsafe extern "C" fn(*mut State, c_int),
    pushlstring: unsafe extern "C" fn(*mut State, *const c_char, usize) -> *const c_char,
    pushlightuserdata: unsafe extern "C" fn(*mut State, *mut c_void),
}

/// `LUA_TLIGHTUSERDATA`, `LUA_TSTRING` and `LUA_TUSERDATA`
const LIGHT_USERDATA: c_int = 2;
const STRING: c_int = 4;
const USERDATA: c_int = 7;

/// Functions of Wireshark that plugins in C may call (`epan/tvbuff.h`): they give access to the bytes of a frame. A Lua
/// string would be a copy that Lua must allocate and free, which takes longer than the analysis.
#[derive(Clone, Copy)]
struct Tvbuff {
    captured_length: unsafe extern "C" fn(*const c_void) -> c_uint,
    reported_length: unsafe extern "C" fn(*const c_void) -> c_uint,
    ptr: unsafe extern "C" fn(*const c_void, c_int, c_int) -> *const u8,
}

impl Tvbuff {
    fn of_host() -> Option<Self> {
        let process = Library::this();
        // SAFETY: the names are Wireshark's, whose functions have these types in every version for which the plugin
        // calls them
        unsafe {
            Some(Self {
                captured_length: *process.get(b"tvb_captured_length\0").ok()?,
                reported_length: *process.get(b"tvb_reported_length\0").ok()?,
                ptr: *process.get(b"tvb_get_ptr\0").ok()?,
            })
        }
    }
}

impl Lua {
    fn of_host() -> Option<Self> {
        let process = Library::this();
        // SAFETY: the names are those of Lua's interface, whose functions have these types in every supported version
        unsafe {
            macro_rules! find {
                ($name:literal) => {
                    *process.get($name).ok()?
                };
            }
            Some(Self {
                gettop: find!(b"lua_gettop\0"),
                checkstack: find!(b"lua_checkstack\0"),
                is_type: find!(b"lua_type\0"),
                tolstring: find!(b"lua_tolstring\0"),
                tonumberx: find!(b"lua_tonumberx\0"),
                toboolean: find!(b"lua_toboolean\0"),
                touserdata: find!(b"lua_touserdata\0"),
                pushnil: find!(b"lua_pushnil\0"),
                pushnumber: find!(b"lua_pushnumber\0"),
                pushinteger: find!(b"lua_pushinteger\0"),
                pushboolean: find!(b"lua_pushboolean\0"),
                pushlstring: find!(b"lua_pushlstring\0"),
                pushlightuserdata: find!(b"lua_pushlightuserdata\0"),
            })
        }
    }
}

/// One call from Lua. It does not outlive that call.
struct Call {
    lua: Lua,
    tvbuff: Option<Tvbuff>,
    state: *mut State,
    pushed: c_int,
}

impl Call {
    fn arguments(&self) -> c_int {
        // SAFETY: Lua called us with this state
        unsafe { (self.lua.gettop)(self.state) }
    }

    fn has_type(&self, at: c_int, kind: c_int) -> bool {
        // SAFETY: as above; any index is allowed
        unsafe { (self.lua.is_type)(self.state, at) == kind }
    }

    /// The string at this index, which is on the stack during the call. Numbers are refused: converting them to strings
    /// might move them.
    fn bytes(&self, at: c_int) -> Option<&[u8]> {
        if !self.has_type(at, STRING) {
            return None;
        }
        let mut length = 0;
        // SAFETY: it is a string, so that Lua gives its bytes and their number, and keeps them as long as it is on the
        // stack
        unsafe {
            let bytes = (self.lua.tolstring)(self.state, at, &mut length);
            (!bytes.is_null()).then(|| std::slice::from_raw_parts(bytes.cast(), length))
        }
    }

    /// The bytes of the `Tvb` at this index, and its length on the wire. In Lua it is a pointer to a structure that
    /// begins with a pointer to Wireshark's own; the plugin passes one only in versions where that is so and both ways
    /// gave the same result for a frame.
    fn tvb<'h>(&self, at: c_int) -> Option<(&'h [u8], u32)> {
        let tvbuff = self.tvbuff.filter(|_| self.has_type(at, USERDATA))?;
        // SAFETY: see above; the bytes are Wireshark's, and stay as long as it is at work on the frame, which is longer
        // than this call. No more of them is asked for than there are
        unsafe {
            let tvb = (self.lua.touserdata)(self.state, at).cast::<*const *const c_void>().as_ref()?.as_ref()?;
            if tvb.is_null() {
                return None;
            }
            let (captured, length) = ((tvbuff.captured_length)(*tvb), (tvbuff.reported_length)(*tvb));
            let bytes = if captured > 0 {
                (tvbuff.ptr)(*tvb, 0, c_int::try_from(captured).ok()?)
            } else {
                NonNull::dangling().as_ptr()
            };
            (!bytes.is_null()).then(|| (std::slice::from_raw_parts(bytes, captured as usize), length))
        }
    }

    fn text(&self, at: c_int) -> &str {
        self.bytes(at).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
    }

    fn number(&self, at: c_int) -> f64 {
        // SAFETY: any index is allowed; a value that is no number gives 0
        unsafe { (self.lua.tonumberx)(self.state, at, std::ptr::null_mut()) }
    }

    fn boolean(&self, at: c_int) -> bool {
        // SAFETY: any index is allowed
        unsafe { (self.lua.toboolean)(self.state, at) != 0 }
    }

    fn address(&self, at: c_int) -> *mut Handle {
        if !self.has_type(at, LIGHT_USERDATA) {
            return std::ptr::null_mut();
        }
        // SAFETY: any index is allowed
        unsafe { (self.lua.touserdata)(self.state, at).cast() }
    }

    /// The engine at this index.
    fn handle<'h>(&self, at: c_int) -> Option<&'h mut Handle> {
        // SAFETY: such an address was returned by "open"; the plugin keeps it private, and releases it with "close".
        // Lua has one thread
        unsafe { self.address(at).as_mut() }
    }

    fn room(&mut self, n: usize) -> bool {
        // SAFETY: as above; asked for before anything is pushed
        c_int::try_from(n).is_ok_and(|n| unsafe { (self.lua.checkstack)(self.state, n + 8) != 0 })
    }

    fn push(&mut self, value: Pushed<'_>) {
        self.pushed += 1;
        // SAFETY: there is room on the stack: Lua gives every call room for 20 values, and `room` was asked for more
        unsafe {
            match value {
                Pushed::Nil => (self.lua.pushnil)(self.state),
                Pushed::Bool(value) => (self.lua.pushboolean)(self.state, value.into()),
                Pushed::Integer(value) => (self.lua.pushinteger)(self.state, value as isize),
                Pushed::Number(value) => (self.lua.pushnumber)(self.state, value),
                Pushed::Bytes(bytes) => {
                    (self.lua.pushlstring)(self.state, bytes.as_ptr().cast(), bytes.len());
                }
                Pushed::Address(address) => (self.lua.pushlightuserdata)(self.state, address.cast()),
            }
        }
    }
}

enum Pushed<'p> {
    Nil,
    Bool(bool),
    Integer(i64),
    Number(f64),
    Bytes(&'p [u8]),
    Address(*mut Handle),
}

static HOST: OnceLock<Option<(Lua, Option<Tvbuff>)>> = OnceLock::new();

/// Lua's entry point.
///
/// # Safety
/// Only Lua may call it.
#[unsafe(no_mangle)]
unsafe extern "C" fn luaopen_rdmascope_engine(state: *mut State) -> c_int {
    // the host's functions do not change: this is no state
    let host = || catch_unwind(|| Some((Lua::of_host()?, Tvbuff::of_host()))).ok().flatten();
    let Some((lua, tvbuff)) = *HOST.get_or_init(host) else { return 0 };
    let mut call = Call { lua, tvbuff, state, pushed: 0 };
    let answered = catch_unwind(AssertUnwindSafe(|| answer(&mut call)));
    if answered.is_err() {
        call.push(Pushed::Nil);
        call.push(Pushed::Bytes(b"the engine failed"));
        return 2;
    }
    call.pushed
}

/// Limit of items of one frame that are passed to Lua, because its stack is limited.
const ITEMS_MAX: usize = 2048;

fn answer(call: &mut Call) {
    match call.handle(1) {
        Some(handle) => frame(call, handle),
        None => named(call),
    }
}

/// Calls a named function. Separate from frames, whose code should stay in the cache.
#[cold]
#[inline(never)]
fn named(call: &mut Call) {
    let word = call.text(1).to_owned();
    match &*word {
        "version" => call.push(Pushed::Bytes(VERSION.as_bytes())),
        "fields" => call.push(Pushed::Bytes(fields().as_bytes())),
        "bytes" => match call.tvb(2) {
            Some((bytes, length)) => {
                call.push(Pushed::Bytes(bytes));
                call.push(Pushed::Integer(length.into()));
            }
            None => call.push(Pushed::Nil),
        },
        "asked" => {
            let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
            match asked_for(String::from_utf8_lossy(&line).split_terminator('\0')) {
                Some(asked) => {
                    call.push(Pushed::Bytes(asked.fields.join("\n").as_bytes()));
                    call.push(Pushed::Bool(asked.protocol));
                    call.push(Pushed::Bool(asked.nothing));
                    call.push(Pushed::Bool(asked.others));
                }
                None => call.push(Pushed::Nil),
            }
        }
        "open" => {
            let mut options = Options { keys: call.text(3).to_owned(), ..Options::default() };
            if call.number(2) >= 1.0 {
                options.memory_max = call.number(2) as u64;
            }
            match Handle::new(options) {
                Ok(handle) => call.push(Pushed::Address(Box::into_raw(Box::new(handle)))),
                Err(why) => fails(call, &why),
            }
        }
        "close" => {
            let address = call.address(2);
            // SAFETY: "open" made it from a box, and the plugin gives it up
            unsafe { crate::c::rdmascope_close(address) }
        }
        _ => match call.handle(2) {
            Some(handle) => asked(call, &word, handle),
            None => fails(call, "no engine"),
        },
    }
}

fn fails(call: &mut Call, why: &str) {
    call.push(Pushed::Nil);
    call.push(Pushed::Bytes(why.as_bytes()));
}

fn asked(call: &mut Call, word: &str, handle: &mut Handle) {
    let number = call.number(3) as u64;
    let done = match word {
        "settle" => {
            let at_end = call.boolean(3);
            handle.guarded(|engine| {
                engine.settle(at_end);
                call.push(Pushed::Integer(engine.settled() as i64));
                Ok(())
            })
        }
        "report" => handle.guarded(|engine| {
            call.push(Pushed::Bytes(engine.report().as_bytes()));
            Ok(())
        }),
        "message" => {
            let index = call.number(4) as u32;
            handle.guarded(|engine| {
                match engine.message(number, index) {
                    Some(bytes) => call.push(Pushed::Bytes(bytes)),
                    None => call.push(Pushed::Nil),
                }
                Ok(())
            })
        }
        "smb_direct" => {
            let message = call.bytes(3).unwrap_or_default().to_vec();
            handle.guarded(|engine| {
                let encoded = engine.smb_direct(&message);
                push_facts(call, encoded, Look::All);
                Ok(())
            })
        }
        "want" => {
            let names: HashSet<&str> = call.text(3).lines().collect();
            let wanted = facts::fields().iter().enumerate();
            let wanted = wanted.map(|(n, def)| names.contains(def.name) && !facts::is_message(n as u16)).collect();
            handle.wanted = Some(wanted);
            Ok(())
        }
        "forget" => handle.guarded(|engine| {
            engine.forget(number);
            Ok(())
        }),
        "status" => handle.guarded(|engine| {
            let status = engine.status();
            for n in [status.frames, status.memory, status.not_kept, status.messages_dropped] {
                call.push(Pushed::Number(n as f64));
            }
            Ok(())
        }),
        _ => return fails(call, "no such call"),
    };
    if done.is_err() {
        call.pushed = 0;
        let why = handle.error().to_owned();
        fails(call, &why);
    }
}

fn frame(call: &mut Call, handle: &mut Handle) {
    let number = call.number(2) as u64;
    // a separate function, to keep it out of the path of frames
    let wanted = handle.wanted.take();
    let done = if call.arguments() < 5 {
        let look = Look::of(call.number(3), wanted.as_deref());
        handle.guarded(|engine| {
            push_facts(call, engine.facts(number)?, look);
            Ok(())
        })
    } else {
        let look = Look::of(call.number(6), wanted.as_deref());
        let time = call.number(3);
        let (bytes, wire_len) = call.tvb(5).unwrap_or_else(|| {
            let captured = call.bytes(5).unwrap_or_default();
            // SAFETY: they are those of a string that is on the stack until this call is over, whatever is pushed
            // behind it
            let bytes = unsafe { std::slice::from_raw_parts(captured.as_ptr(), captured.len()) };
            (bytes, call.number(4) as u32)
        });
        let time_ns = (call.number(7) as i64).saturating_mul(1_000_000_000).saturating_add(nanoseconds(time));
        let frame = Frame { number, time_ns, link_type: None, wire_len, bytes };
        handle.guarded(|engine| {
            push_facts(call, engine.frame(&frame)?, look);
            Ok(())
        })
    };
    handle.wanted = wanted;
    if done.is_err() {
        call.pushed = 0;
        let why = handle.error().to_owned();
        fails(call, &why);
    }
}

/// The items of a frame that are pushed.
#[derive(Clone, Copy)]
enum Look<'w> {
    None,
    /// By the indices of their fields.
    Wanted(&'w [bool]),
    All,
}

impl<'w> Look<'w> {
    fn of(look: f64, wanted: Option<&'w [bool]>) -> Self {
        match (look as u8, wanted) {
            (2, Some(wanted)) => Self::Wanted(wanted),
            (2 | 3, _) => Self::All,
            _ => Self::None,
        }
    }
}

/// Converts seconds as a Lua number to ns. Whole seconds come separately, since 2^53 ns are only a hundred days.
fn nanoseconds(seconds: f64) -> i64 {
    let whole = seconds.floor();
    (whole as i64).saturating_mul(1_000_000_000).saturating_add(((seconds - whole) * 1e9).round() as i64)
}

/// Pushes the flags of a frame, and the items that `look` selects.
fn push_facts(call: &mut Call, encoded: &[u8], look: Look<'_>) {
    let (layer, flags) = (encoded.get(2).copied().unwrap_or(0), facts::flags(encoded));
    call.push(Pushed::Integer(i64::from(layer) * 256 + i64::from(flags)));
    let wanted = match look {
        Look::None => return,
        Look::Wanted(wanted) => Some(wanted),
        Look::All => None,
    };
    let defs = facts::fields();
    let is_wanted = |item: &Item<'_>| wanted.is_none_or(|wanted| wanted.get(usize::from(item.field)) == Some(&true));
    for item in facts::items(encoded).filter(is_wanted).take(ITEMS_MAX) {
        if !call.room(5) {
            return;
        }
        call.push(Pushed::Integer(i64::from(item.field) + 1));
        call.push(Pushed::Integer(item.depth.into()));
        match item.place {
            Some((offset, length)) => {
                call.push(Pushed::Number(f64::from(length) * 4_294_967_296.0 + f64::from(offset)))
            }
            None => call.push(Pushed::Bool(false)),
        }
        let number = item.number();
        let is_wide = defs.get(usize::from(item.field)).is_some_and(|def| matches!(def.kind, Kind::U64 | Kind::I64));
        let (a, b) = match item.kind {
            facts::UNSIGNED | facts::SIGNED if is_wide => {
                (Pushed::Integer((number & 0xffff_ffff) as i64), Pushed::Integer((number >> 32) as i64))
            }
            facts::UNSIGNED | facts::SIGNED => (Pushed::Integer(number as i64), Pushed::Bool(false)),
            facts::TEXT | facts::BYTES => (Pushed::Bytes(item.value), Pushed::Bool(false)),
            facts::TIME => (Pushed::Integer(number as i64), Pushed::Integer(item.words().0.into())),
            facts::APART => (Pushed::Integer(item.words().0.into()), Pushed::Bool(item.words().1 != 0)),
            _ => (Pushed::Bool(false), Pushed::Bool(false)),
        };
        call.push(a);
        call.push(b);
    }
}
