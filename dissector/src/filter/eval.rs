//! Tests on the values that an extractor kept.
//!
//! The cost is bounded: of the right side of a comparison between two fields, at most [`RIGHT_MAX`] values are looked
//! at for each value of the left side, and no test looks at more than [`VALUES_MAX`] values in all.

use super::{Arithmetic, Function, Literal, Op, Operand, Part, Reference, SliceEnd, Test};
use crate::extract::{Extractor, Slot};
use crate::field::{FieldDef, Kind};
use crate::render::{Stored, Style, show};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::cmp::Ordering;

/// Values of the right side of a comparison that are looked at.
const RIGHT_MAX: usize = 1024;
/// Values that are computed with, for one frame. A frame of a million values of one field, added to itself ten times,
/// has more sums than can be looked at.
const VALUES_MAX: u32 = 1 << 22;

pub(super) struct Context<'p> {
    extractor: &'p Extractor,
    slots: &'p [Slot],
    references: &'p [Reference],
    left: Cell<u32>,
}

impl<'p> Context<'p> {
    pub(super) fn new(extractor: &'p Extractor, slots: &'p [Slot], references: &'p [Reference]) -> Self {
        Self { extractor, slots, references, left: Cell::new(VALUES_MAX) }
    }

    /// Counts one value; whether there are too many.
    fn spent(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }
}

/// A value that is being compared.
#[derive(Clone)]
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
            Self::Present(at) => c.extractor.has(c.slots[usize::from(*at)]),
            Self::Exists(operand) => operand.each(c, &mut |_, _| true),
            Self::Truthy(operand) => operand.each(c, &mut |v, _| match v {
                Value::U(n) => *n != 0,
                Value::I(n) => *n != 0,
                Value::Real(n) => *n != 0.0,
                Value::Bytes(b) => b.iter().any(|b| *b != 0),
                Value::Text(t) => !t.is_empty(),
                Value::Net(..) | Value::Time(..) | Value::None => true,
            }),
            Self::Compare { op, all, left, right } => compare(c, *op, *all, left, right),
            Self::Contains { all, left, right } => pairs(c, *all, left, right, |l, r| match (l, r) {
                (Value::Text(l), Value::Text(r)) => !r.is_empty() && l.contains(&**r),
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
            Self::In { all, not: false, left, set } => among(c, *all, left, set),
            Self::In { all, not: true, left, set } => left.each(c, &mut |_, _| true) && !among(c, *all, left, set),
            Self::And(tests) => tests.iter().all(|t| t.eval(c)),
            Self::Or(tests) => tests.iter().any(|t| t.eval(c)),
            Self::Xor(tests) => tests.iter().filter(|t| t.eval(c)).count() % 2 == 1,
            Self::Not(test) => !test.eval(c),
        }
    }
}

/// True if any value passes; with `all`, if there are values and all pass. `walk` calls the function with each outcome
/// and stops when it returns true.
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

fn pairs(
    c: &Context<'_>,
    all: bool,
    left: &Operand,
    right: &Operand,
    test: impl Fn(&Value<'_>, &Value<'_>) -> bool,
) -> bool {
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

fn among(c: &Context<'_>, all: bool, left: &Operand, set: &[(Operand, Option<Operand>)]) -> bool {
    quantified(all, |hit| {
        left.each(c, &mut |v, _| {
            hit(set.iter().any(|(first, last)| match (first, last) {
                (Operand::Literal(first), None) => passes(Op::Eq, v, &first.value()),
                (first, None) => first.each(c, &mut |f, _| passes(Op::Eq, v, f)),
                (first, Some(last)) => {
                    first.each(c, &mut |f, _| passes(Op::Ge, v, f)) && last.each(c, &mut |l, _| passes(Op::Le, v, l))
                }
            }))
        })
    })
}

fn compare(c: &Context<'_>, op: Op, all: bool, left: &Operand, right: &Operand) -> bool {
    // the most frequent filter: a field compared with a number
    if let (Operand::Field(at), Operand::Literal(Literal::U(r)), false) = (left, right, all) {
        return c.extractor.values(c.slots[usize::from(*at)]).any(|(_, v)| match v {
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
    // in Wireshark nothing contains nothing
    let Some((first, rest)) = needle.split_first() else { return false };
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

/// Callback for each value and the field that it came from; it returns true to stop.
type Visit<'f> = &'f mut dyn FnMut(&Value<'_>, Option<&FieldDef>) -> bool;

impl Operand {
    /// Calls `visit` with each value until it says stop; gives whether it did.
    fn each(&self, c: &Context<'_>, visit: Visit<'_>) -> bool {
        match self {
            Self::Field(at) => {
                c.extractor.values(c.slots[usize::from(*at)]).any(|(def, v)| visit(&value(def, v), Some(def)))
            }
            Self::Layers(at, parts) => {
                let slot = c.slots[usize::from(*at)];
                let most = c.extractor.values_with_layers(slot).map(|(layer, ..)| layer).max().unwrap_or(0);
                let inside =
                    |layer: u16| layer > 0 && parts.iter().any(|part| part.has(i64::from(layer), i64::from(most)));
                c.extractor
                    .values_with_layers(slot)
                    .any(|(layer, def, v)| inside(layer) && visit(&value(def, v), Some(def)))
            }
            Self::Reference(at) => c.references[usize::from(*at)].values.iter().any(|l| visit(&l.value(), None)),
            Self::Absent => false,
            Self::Literal(literal) => visit(&literal.value(), None),
            Self::Slice(inner, parts) => inner.each(c, &mut |v, def| match v {
                Value::Bytes(b) => {
                    let taken = slice(b, parts);
                    !taken.is_empty() && visit(&Value::Bytes(taken), def)
                }
                Value::Text(t) => {
                    let chars: Vec<char> = t.chars().collect();
                    let taken = slice(&chars, parts);
                    !taken.is_empty() && visit(&Value::Text(Cow::Owned(taken.iter().collect())), def)
                }
                _ => false,
            }),
            Self::Arithmetic(operator, a, b) => a.each(c, &mut |l, def| {
                let mut looked = 0;
                b.each(c, &mut |r, _| {
                    looked += 1;
                    if looked > RIGHT_MAX || c.spent() {
                        return false;
                    }
                    compute(*operator, l, r).is_some_and(|v| visit(&v, def))
                })
            }),
            Self::Negative(inner) => inner.each(c, &mut |v, def| {
                let zero = if matches!(v, Value::Time(..)) { Value::Time(0, 0) } else { Value::U(0) };
                compute(Arithmetic::Subtract, &zero, v).is_some_and(|v| visit(&v, def))
            }),
            Self::Name(inner) => inner.each(c, &mut |v, def| {
                let name = bits(v).and_then(|n| def?.value_name(n));
                name.is_some_and(|n| visit(&Value::Text(Cow::Borrowed(n)), def))
            }),
            Self::Call(function, arguments) => call(*function, arguments, c, visit),
        }
    }
}

impl Part {
    /// True if the layer `n` of `most` is one of these.
    fn has(&self, n: i64, most: i64) -> bool {
        let from_start = |at: i64| if at < 0 { most + 1 + at } else { at };
        let start = from_start(self.start);
        n >= start
            && match self.end {
                SliceEnd::Open => true,
                SliceEnd::Length(len) => n < start.saturating_add(i64::try_from(len).unwrap_or(i64::MAX)),
                SliceEnd::Last(last) => n <= from_start(last),
            }
    }
}

fn call(function: Function, arguments: &[Operand], c: &Context<'_>, visit: Visit<'_>) -> bool {
    let Some(inner) = arguments.first() else { return false };
    match function {
        Function::Count => {
            let mut n = 0;
            inner.each(c, &mut |_, _| {
                n += 1;
                false
            });
            visit(&Value::U(n), None)
        }
        Function::Greatest | Function::Least => {
            let wanted = if function == Function::Greatest { Ordering::Greater } else { Ordering::Less };
            let mut best: Option<Value<'static>> = None;
            for argument in arguments {
                argument.each(c, &mut |v, _| {
                    if best.as_ref().is_none_or(|b| order(v, b) == Some(wanted)) {
                        best = own(v);
                    }
                    c.spent()
                });
            }
            best.is_some_and(|v| visit(&v, None))
        }
        _ => inner.each(c, &mut |v, def| {
            let computed = match (function, v) {
                (Function::Len, Value::Bytes(b)) => Value::U(b.len() as u64),
                (Function::Len, Value::Text(t)) => Value::U(t.len() as u64),
                (Function::Lower, Value::Text(t)) => Value::Text(Cow::Owned(t.to_lowercase())),
                (Function::Upper, Value::Text(t)) => Value::Text(Cow::Owned(t.to_uppercase())),
                (Function::Text, v) => match (text(v), def) {
                    (Some(Stored::U(n)), Some(def)) if def.kind != Kind::Bool => {
                        Value::Text(Cow::Owned(alloc::format!("{n}")))
                    }
                    (Some(stored), Some(def)) => Value::Text(Cow::Owned(show(def, stored, Style::Pdml))),
                    (Some(Stored::U(n)), None) => Value::Text(Cow::Owned(alloc::format!("{n}"))),
                    (Some(Stored::Text(t)), None) => Value::Text(Cow::Owned(t.into())),
                    _ => return false,
                },
                (Function::Decimal, Value::U(n)) => Value::Text(Cow::Owned(alloc::format!("{n}"))),
                (Function::Decimal, Value::I(n)) => Value::Text(Cow::Owned(alloc::format!("{n}"))),
                (Function::Hexadecimal, Value::U(n)) => {
                    let width = 2 + def.map_or(0, |d| d.kind.bits() as usize / 4);
                    Value::Text(Cow::Owned(alloc::format!("{n:#0width$x}")))
                }
                (Function::Real, v) => match real(v) {
                    Some(n) => Value::Real(n),
                    None => return false,
                },
                (Function::Absolute, Value::U(n)) => Value::U(*n),
                (Function::Absolute, Value::I(n)) => Value::U(n.unsigned_abs()),
                (Function::Absolute, Value::Real(n)) => Value::Real(if *n < 0.0 { -*n } else { *n }),
                (Function::Absolute, Value::Time(s, n)) => time(nanos(*s, *n).abs()),
                _ => return false,
            };
            visit(&computed, None)
        }),
    }
}

/// A value that outlives its frame.
fn own(v: &Value<'_>) -> Option<Value<'static>> {
    Some(match v {
        Value::U(n) => Value::U(*n),
        Value::I(n) => Value::I(*n),
        Value::Real(n) => Value::Real(*n),
        Value::Bytes(b) => Value::Bytes(Cow::Owned(b.to_vec())),
        Value::Text(t) => Value::Text(Cow::Owned(String::from(&**t))),
        Value::Time(s, n) => Value::Time(*s, *n),
        Value::Net(..) | Value::None => return None,
    })
}

fn integer(v: &Value<'_>) -> Option<i128> {
    match v {
        Value::U(n) => Some(i128::from(*n)),
        Value::I(n) => Some(i128::from(*n)),
        _ => None,
    }
}

fn real(v: &Value<'_>) -> Option<f64> {
    match v {
        Value::Real(n) => Some(*n),
        Value::Time(s, n) => Some(*s as f64 + f64::from(*n) / 1e9),
        other => integer(other).map(|n| n as f64),
    }
}

fn nanos(seconds: i64, nanos: u32) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

fn time(ns: i128) -> Value<'static> {
    const NS: i128 = 1_000_000_000;
    let seconds = ns.div_euclid(NS).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    Value::Time(seconds, ns.rem_euclid(NS) as u32)
}

/// Two values and the operator between them; `None` where there is no result: a division by 0, a number that is too
/// large.
fn compute(operator: Arithmetic, l: &Value<'_>, r: &Value<'_>) -> Option<Value<'static>> {
    match (l, r) {
        (Value::Bytes(l), Value::Bytes(r)) => {
            let both = l.iter().zip(r.iter()).map(|(l, r)| l & r).collect();
            (operator == Arithmetic::And).then_some(Value::Bytes(Cow::Owned(both)))
        }
        (Value::Time(s, n), Value::Time(s2, n2)) => {
            let (l, r) = (nanos(*s, *n), nanos(*s2, *n2));
            match operator {
                Arithmetic::Add => Some(time(l + r)),
                Arithmetic::Subtract => Some(time(l - r)),
                _ => None,
            }
        }
        (Value::Time(s, n), by) | (by, Value::Time(s, n)) => {
            let ns = nanos(*s, *n);
            match (operator, integer(by)) {
                (Arithmetic::Multiply, Some(by)) => ns.checked_mul(by).map(time),
                (Arithmetic::Divide, Some(by)) => ns.checked_div(by).map(time),
                (Arithmetic::Multiply, None) => real(by).map(|by| time((ns as f64 * by) as i128)),
                (Arithmetic::Divide, None) => real(by).filter(|by| *by != 0.0).map(|by| time((ns as f64 / by) as i128)),
                _ => None,
            }
        }
        _ => match (integer(l), integer(r)) {
            (Some(l), Some(r)) => {
                let v = match operator {
                    Arithmetic::And => l & r,
                    Arithmetic::Add => l + r,
                    Arithmetic::Subtract => l - r,
                    Arithmetic::Multiply => l.checked_mul(r)?,
                    Arithmetic::Divide => l.checked_div(r)?,
                    Arithmetic::Remainder => l.checked_rem(r)?,
                };
                match u64::try_from(v) {
                    Ok(v) => Some(Value::U(v)),
                    Err(_) => i64::try_from(v).ok().map(Value::I),
                }
            }
            _ => {
                let (l, r) = (real(l)?, real(r)?);
                let v = match operator {
                    Arithmetic::And => return None,
                    Arithmetic::Add => l + r,
                    Arithmetic::Subtract => l - r,
                    Arithmetic::Multiply => l * r,
                    Arithmetic::Divide => l / r,
                    Arithmetic::Remainder => l % r,
                };
                v.is_finite().then_some(Value::Real(v))
            }
        },
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

/// The parts of a slice, one behind the other. Elements outside of `all` are left out.
fn slice<'s, E: Clone>(all: &'s [E], parts: &[Part]) -> Cow<'s, [E]> {
    let one = |part: &Part| -> &'s [E] {
        let len = all.len() as i64;
        let from = |at: i64| if at < 0 { (len + at).max(0) } else { at.min(len) };
        let start = from(part.start);
        let end = match part.end {
            SliceEnd::Open => len,
            SliceEnd::Length(n) => start.saturating_add(i64::try_from(n).unwrap_or(i64::MAX)).min(len),
            SliceEnd::Last(at) if at < 0 => (len + at + 1).max(start),
            SliceEnd::Last(at) => at.saturating_add(1).clamp(start, len),
        };
        &all[start as usize..(end as usize).max(start as usize)]
    };
    match parts {
        [part] => Cow::Borrowed(one(part)),
        _ => Cow::Owned(parts.iter().flat_map(one).cloned().collect()),
    }
}
