//! Tests on the values that a probe kept.
//!
//! The cost is linear in the values of a frame: of the right side of a comparison between two fields, at most
//! [`RIGHT_MAX`] values are looked at for each value of the left side.

use super::{End, Function, Literal, Op, Operand, Part, Test};
use crate::field::{FieldDef, Kind};
use crate::probe::{Probe, Slot};
use crate::render::{Stored, Style, show};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Values of the right side of a comparison that are looked at.
const RIGHT_MAX: usize = 1024;

pub(super) struct Context<'p> {
    pub(super) probe: &'p Probe,
    pub(super) slots: &'p [Slot],
}

/// A value that is being compared.
enum Value<'v> {
    U(u64),
    I(i64),
    Real(f64),
    Bytes(Cow<'v, [u8]>),
    Net(&'v [u8], u32),
    Text(Cow<'v, str>),
    Time(i64, u32),
    /// There, but without a value.
    None,
}

impl Test {
    pub(super) fn eval(&self, c: &Context<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Present(at) => c.probe.has(c.slots[usize::from(*at)]),
            Self::Truthy(operand) => operand.each(c, &mut |v, _| match v {
                Value::U(n) => *n != 0,
                Value::I(n) => *n != 0,
                Value::Real(n) => *n != 0.0,
                Value::Bytes(b) => !b.is_empty(),
                Value::Text(t) => !t.is_empty(),
                Value::Net(..) | Value::Time(..) | Value::None => true,
            }),
            Self::Compare { op, all, left, right } => compare(c, *op, *all, left, right),
            Self::Contains { all, left, right } => pairs(c, *all, left, right, |l, r| match (l, r) {
                (Value::Text(l), Value::Text(r)) => l.contains(&**r),
                (Value::Bytes(l), Value::Bytes(r)) => contains(l, r),
                (Value::Bytes(l), Value::Text(r)) => contains(l, r.as_bytes()),
                _ => false,
            }),
            Self::Matches { all, left, regex } => quantified(*all, |hit| {
                left.each(c, &mut |v, _| {
                    hit(match v {
                        Value::Text(t) => regex.is_match(t.as_bytes()),
                        Value::Bytes(b) => regex.is_match(b),
                        _ => false,
                    })
                })
            }),
            Self::In { all, left, set } => quantified(*all, |hit| {
                left.each(c, &mut |v, _| {
                    hit(set.iter().any(|(first, last)| match last {
                        None => passes(Op::Eq, v, &first.value()),
                        Some(last) => passes(Op::Ge, v, &first.value()) && passes(Op::Le, v, &last.value()),
                    }))
                })
            }),
            Self::And(tests) => tests.iter().all(|t| t.eval(c)),
            Self::Or(tests) => tests.iter().any(|t| t.eval(c)),
            Self::Xor(tests) => tests.iter().filter(|t| t.eval(c)).count() % 2 == 1,
            Self::Not(test) => !test.eval(c),
        }
    }
}

/// Whether any value passes, or all of at least one do. `walk` calls the function with each outcome and stops where it
/// returns true.
fn quantified(all: bool, walk: impl FnOnce(&mut dyn FnMut(bool) -> bool) -> bool) -> bool {
    if !all {
        return walk(&mut |passed| passed);
    }
    let mut seen = false;
    let failed = walk(&mut |passed| {
        seen = true;
        !passed
    });
    seen && !failed
}

fn pairs(c: &Context<'_>, all: bool, left: &Operand, right: &Operand, test: impl Fn(&Value<'_>, &Value<'_>) -> bool) -> bool {
    quantified(all, |hit| {
        left.each(c, &mut |l, _| {
            let mut looked = 0;
            right.each(c, &mut |r, _| {
                looked += 1;
                hit(test(l, r)) || looked == RIGHT_MAX && all
            })
        })
    })
}

fn compare(c: &Context<'_>, op: Op, all: bool, left: &Operand, right: &Operand) -> bool {
    // what most filters are: a field beside a number
    if let (Operand::Field(at), Operand::Literal(Literal::U(r)), false) = (left, right, all) {
        return c.probe.values(c.slots[usize::from(*at)]).any(|(_, v)| match v {
            Stored::U(l) => holds(op, l.cmp(r)),
            Stored::I(l) => holds(op, i128::from(l).cmp(&i128::from(*r))),
            _ => false,
        });
    }
    pairs(c, all, left, right, |l, r| passes(op, l, r))
}

const fn holds(op: Op, order: Ordering) -> bool {
    match op {
        Op::Eq => order.is_eq(),
        Op::Ne => order.is_ne(),
        Op::Gt => order.is_gt(),
        Op::Lt => order.is_lt(),
        Op::Ge => order.is_ge(),
        Op::Le => order.is_le(),
    }
}

fn passes(op: Op, l: &Value<'_>, r: &Value<'_>) -> bool {
    match (l, r) {
        (Value::Bytes(l), Value::Net(r, bits)) | (Value::Net(r, bits), Value::Bytes(l)) => {
            l.len() == r.len() && holds(op, masked(l, *bits).cmp(&masked(r, *bits)))
        }
        _ => order(l, r).is_some_and(|o| holds(op, o)),
    }
}

/// Up to sixteen bytes as a number, of which the first `bits` count.
fn masked(bytes: &[u8], bits: u32) -> u128 {
    let mut wide = [0; 16];
    let n = bytes.len().min(16);
    wide[..n].copy_from_slice(&bytes[..n]);
    let v = u128::from_be_bytes(wide);
    if bits == 0 { 0 } else { v >> (128 - bits.min(128)) }
}

fn order(l: &Value<'_>, r: &Value<'_>) -> Option<Ordering> {
    let integer = |v: &Value<'_>| match v {
        Value::U(n) => Some(i128::from(*n)),
        Value::I(n) => Some(i128::from(*n)),
        _ => None,
    };
    let real = |v: &Value<'_>| match v {
        Value::Real(n) => Some(*n),
        other => integer(other).map(|n| n as f64),
    };
    match (l, r) {
        (Value::Text(l), Value::Text(r)) => Some(l.cmp(r)),
        (Value::Bytes(l), Value::Bytes(r)) => Some(l.cmp(r)),
        (Value::Bytes(l), Value::Text(r)) => Some((**l).cmp(r.as_bytes())),
        (Value::Text(l), Value::Bytes(r)) => Some(l.as_bytes().cmp(r)),
        (Value::Time(s, n), Value::Time(s2, n2)) => Some((s, n).cmp(&(s2, n2))),
        _ => match (integer(l), integer(r)) {
            (Some(l), Some(r)) => Some(l.cmp(&r)),
            _ => real(l)?.partial_cmp(&real(r)?),
        },
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    let Some((first, rest)) = needle.split_first() else { return true };
    let mut from = haystack;
    // jump from one occurrence of the first byte to the next
    while let Some(at) = from.iter().position(|b| b == first) {
        from = &from[at + 1..];
        if from.starts_with(rest) {
            return true;
        }
    }
    false
}

impl Literal {
    fn value(&self) -> Value<'_> {
        match self {
            Self::U(v) => Value::U(*v),
            Self::I(v) => Value::I(*v),
            Self::Real(v) => Value::Real(*v),
            Self::Bytes(b) => Value::Bytes(Cow::Borrowed(b)),
            Self::Net(b, bits) => Value::Net(b, *bits),
            Self::Text(t) => Value::Text(Cow::Borrowed(t)),
            Self::Time(s, n) => Value::Time(*s, *n),
        }
    }
}

/// What is called with each value and the field it came from; it returns whether to stop.
type Visit<'f> = &'f mut dyn FnMut(&Value<'_>, Option<&FieldDef>) -> bool;

impl Operand {
    /// Calls `visit` with each value until it says stop; gives whether it did.
    fn each(&self, c: &Context<'_>, visit: Visit<'_>) -> bool {
        match self {
            Self::Field(at) => c.probe.values(c.slots[usize::from(*at)]).any(|(def, v)| visit(&value(def, v), Some(def))),
            Self::Literal(literal) => visit(&literal.value(), None),
            Self::Slice(inner, parts) => inner.each(c, &mut |v, def| match v {
                Value::Bytes(b) => visit(&Value::Bytes(slice(b, parts)), def),
                Value::Text(t) => {
                    let chars: Vec<char> = t.chars().collect();
                    let taken = slice(&chars, parts);
                    visit(&Value::Text(Cow::Owned(taken.iter().collect())), def)
                }
                _ => false,
            }),
            Self::Mask(a, b) => a.each(c, &mut |l, def| {
                b.each(c, &mut |r, _| match (bits(l), bits(r)) {
                    (Some(l), Some(r)) => visit(&Value::U(l & r), def),
                    _ => false,
                })
            }),
            Self::Name(inner) => inner.each(c, &mut |v, def| {
                let name = bits(v).and_then(|n| def?.value_name(n));
                name.is_some_and(|n| visit(&Value::Text(Cow::Borrowed(n)), def))
            }),
            Self::Call(Function::Count, inner) => match &**inner {
                Self::Field(at) => {
                    let n = c.probe.count(c.slots[usize::from(*at)]);
                    // a field that is not there has no count, so that the test is false as all others are
                    n > 0 && visit(&Value::U(n as u64), None)
                }
                _ => false,
            },
            Self::Call(function, inner) => inner.each(c, &mut |v, def| {
                let computed = match (function, v) {
                    (Function::Len, Value::Bytes(b)) => Value::U(b.len() as u64),
                    (Function::Len, Value::Text(t)) => Value::U(t.len() as u64),
                    (Function::Lower, Value::Text(t)) => Value::Text(Cow::Owned(t.to_lowercase())),
                    (Function::Upper, Value::Text(t)) => Value::Text(Cow::Owned(t.to_uppercase())),
                    (Function::Text, v) => match (text(v), def) {
                        (Some(stored), Some(def)) => Value::Text(Cow::Owned(show(def, stored, Style::Pdml))),
                        (Some(Stored::U(n)), None) => Value::Text(Cow::Owned(alloc::format!("{n}"))),
                        (Some(Stored::Text(t)), None) => Value::Text(Cow::Owned(t.into())),
                        _ => return false,
                    },
                    _ => return false,
                };
                visit(&computed, None)
            }),
        }
    }
}

fn text<'v>(v: &'v Value<'_>) -> Option<Stored<'v>> {
    Some(match v {
        Value::U(n) => Stored::U(*n),
        Value::I(n) => Stored::I(*n),
        Value::Real(n) => Stored::U(n.to_bits()),
        Value::Bytes(b) => Stored::Bytes(b),
        Value::Text(t) => Stored::Text(t),
        Value::Time(s, n) => Stored::Time(*s, *n),
        Value::Net(..) | Value::None => return None,
    })
}

fn bits(v: &Value<'_>) -> Option<u64> {
    match v {
        Value::U(n) => Some(*n),
        Value::I(n) => Some(*n as u64),
        _ => None,
    }
}

fn value<'p>(def: &FieldDef, stored: Stored<'p>) -> Value<'p> {
    match stored {
        Stored::None => Value::None,
        Stored::U(v) if def.kind == Kind::Double => Value::Real(f64::from_bits(v)),
        Stored::U(v) => Value::U(v),
        Stored::I(v) => Value::I(v),
        Stored::Bytes(b) => Value::Bytes(Cow::Borrowed(b)),
        Stored::Text(t) => Value::Text(Cow::Borrowed(t)),
        Stored::Time(s, n) => Value::Time(s, n),
    }
}

/// The parts of a slice, one behind the other. What lies outside of the elements is left out.
fn slice<'s, E: Clone>(all: &'s [E], parts: &[Part]) -> Cow<'s, [E]> {
    let one = |part: &Part| -> &'s [E] {
        let len = all.len() as i64;
        let from = |at: i64| if at < 0 { (len + at).max(0) } else { at.min(len) };
        let start = from(part.start);
        let end = match part.end {
            End::Open => len,
            End::Length(n) => start.saturating_add(i64::try_from(n).unwrap_or(i64::MAX)).min(len),
            End::Last(at) if at < 0 => (len + at + 1).max(start),
            End::Last(at) => at.saturating_add(1).clamp(start, len),
        };
        &all[start as usize..(end as usize).max(start as usize)]
    };
    match parts {
        [part] => Cow::Borrowed(one(part)),
        _ => Cow::Owned(parts.iter().flat_map(one).cloned().collect()),
    }
}
