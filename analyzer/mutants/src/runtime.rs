//! What the mutated code calls. `rdmascope-mutants` copies this file into the copy of the analyzer. `MUTANT` is the
//! number of the mutant that is active; `MUTANT_REACH` names a file that gets the number of each place that is reached.

#![allow(dead_code, missing_docs, clippy::all)]
extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// One more than the last number.
const COUNT: usize = 0;
const UNKNOWN: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
static REACH: OnceLock<Mutex<File>> = OnceLock::new();

#[cold]
#[inline(never)]
fn read() -> u32 {
    let number = match std::env::var_os("MUTANT_REACH") {
        Some(path) => {
            let file = File::options().create(true).append(true).open(path).expect("the file of what is reached opens");
            let _ = REACH.set(Mutex::new(file));
            RECORD
        }
        None => std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0),
    };
    ACTIVE.store(number, Relaxed);
    number
}

#[cold]
#[inline(never)]
fn reach(id: u32) {
    if !REACHED[id as usize].swap(true, Relaxed) {
        let line = std::format!("{id}\n");
        let mut file = REACH.get().expect("opened before").lock().expect("no panic while it is written");
        file.write_all(line.as_bytes()).expect("what is reached is written");
    }
}

/// 0 for the code as it is, else which of the `count` mutants of a place is active.
#[inline]
fn pick(id: u32, count: u32) -> u32 {
    let mut active = ACTIVE.load(Relaxed);
    if active == UNKNOWN {
        active = read();
    }
    if active == RECORD {
        reach(id);
        return 0;
    }
    let n = active.wrapping_sub(id);
    if n < count { n + 1 } else { 0 }
}

/// True if this mutant is active.
#[inline]
pub fn m(id: u32) -> bool {
    pick(id, 1) == 1
}

/// A guard: itself, true, false.
#[inline]
pub fn guard(id: u32, guard: bool) -> bool {
    match pick(id, 2) {
        0 => guard,
        n => n == 1,
    }
}

macro_rules! ordered {
    ($($name:ident $op:tt $neighbour:tt $contrary:tt;)*) => {$(
        #[inline]
        pub fn $name<A: PartialOrd<B> + ?Sized, B: ?Sized>(id: u32, a: &A, b: &B) -> bool {
            match pick(id, 2) {
                0 => a $op b,
                1 => a $neighbour b,
                _ => a $contrary b,
            }
        }
    )*};
}

ordered! {
    lt < <= >=;
    le <= < >;
    gt > >= <=;
    ge >= > <;
}

#[inline]
pub fn eq<A: PartialEq<B> + ?Sized, B: ?Sized>(id: u32, a: &A, b: &B) -> bool {
    if pick(id, 1) == 0 { a == b } else { a != b }
}

#[inline]
pub fn ne<A: PartialEq<B> + ?Sized, B: ?Sized>(id: u32, a: &A, b: &B) -> bool {
    if pick(id, 1) == 0 { a != b } else { a == b }
}

/// Numbers, as the operators of the language have them: a sum that does not fit panics.
pub trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn by(self, other: Self) -> Self;
    fn rest(self, other: Self) -> Self;
}

/// Integers and bools.
pub trait Bits: Copy {
    fn both(self, other: Self) -> Self;
    fn either(self, other: Self) -> Self;
    fn one(self, other: Self) -> Self;
}

/// Integers.
pub trait Shift: Copy {
    fn left(self, by: u32) -> Self;
    fn right(self, by: u32) -> Self;
    fn count(self) -> u32;
}

macro_rules! numbers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline]
            fn by(self, other: Self) -> Self {
                self / other
            }
            #[inline]
            fn rest(self, other: Self) -> Self {
                self % other
            }
        }
    )*};
}

macro_rules! bits {
    ($($t:ty)*) => {$(
        impl Bits for $t {
            #[inline]
            fn both(self, other: Self) -> Self {
                self & other
            }
            #[inline]
            fn either(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn one(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

macro_rules! shifts {
    ($($t:ty)*) => {$(
        impl Shift for $t {
            #[inline]
            fn left(self, by: u32) -> Self {
                self << by
            }
            #[inline]
            fn right(self, by: u32) -> Self {
                self >> by
            }
            #[inline]
            fn count(self) -> u32 {
                self as u32
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);
bits!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize bool);
shifts!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! operators {
    ($($name:ident $to:ident $at:ident $bound:ident $op:ident $other:ident;)*) => {$(
        #[inline]
        pub fn $name<T: $bound>(id: u32, a: T, b: T) -> T {
            if pick(id, 1) == 0 { a.$op(b) } else { a.$other(b) }
        }
        /// For an assignment: the language evaluates the right side first.
        #[inline]
        pub fn $to<T: $bound>(id: u32, b: T, a: T) -> T {
            $name(id, a, b)
        }
        #[inline]
        pub fn $at<T: $bound>(id: u32, a: &mut T, b: T) {
            *a = $name(id, *a, b);
        }
    )*};
}

operators! {
    add add_to add_at Number plus minus;
    sub sub_to sub_at Number minus plus;
    mul mul_to mul_at Number times by;
    div div_to div_at Number by times;
    rem rem_to rem_at Number rest by;
    and and_to and_at Bits both either;
    or or_to or_at Bits either both;
    xor xor_to xor_at Bits one either;
}

#[inline]
pub fn shl<A: Shift, B: Shift>(id: u32, a: A, b: B) -> A {
    if pick(id, 1) == 0 { a.left(b.count()) } else { a.right(b.count()) }
}

#[inline]
pub fn shr<A: Shift, B: Shift>(id: u32, a: A, b: B) -> A {
    if pick(id, 1) == 0 { a.right(b.count()) } else { a.left(b.count()) }
}

#[inline]
pub fn not<T: core::ops::Not<Output = T>>(id: u32, a: T) -> T {
    if pick(id, 1) == 0 { !a } else { a }
}

#[inline]
pub fn neg<T: core::ops::Neg<Output = T>>(id: u32, a: T) -> T {
    if pick(id, 1) == 0 { -a } else { a }
}
