//! Serializes the results of an analysis, so that a program can keep the [`Report`] and the exchanges of a capture.
//!
//! ```text
//!   whole numbers      7 bits a byte, least first; the highest bit says that there are more. Signed ones zigzag
//!   bool, enum         a byte, and the parts of the variant
//!   Option             a byte, and the value
//!   Vec, text          number of elements, elements
//!   a fixed name       its number; the first time the text follows
//! ```
//!
//! The format has no version: only the build that wrote the bytes may read them. Reading is safe for any bytes: invalid
//! ones give `None`, and memory is bounded by their number.
//!
//! [`Report`]: crate::report::Report

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of elements for which memory is reserved before the first is read.
const ROOM: usize = 256;

/// Bytes being written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    names: BTreeMap<&'static str, u64>,
}

impl Writer {
    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Bytes being read.
pub struct Reader<'b> {
    bytes: &'b [u8],
    names: Vec<&'static str>,
    fixed: &'b mut dyn FnMut(&str) -> Option<&'static str>,
}

impl<'b> Reader<'b> {
    /// Reads `bytes`. `fixed` gives a text that stays, for a name; `None` if there are too many.
    pub fn new(bytes: &'b [u8], fixed: &'b mut dyn FnMut(&str) -> Option<&'static str>) -> Self {
        Self { bytes, names: Vec::new(), fixed }
    }

    /// True if all was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number of elements, each of which takes a byte or more.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= self.bytes.len())
    }

    fn text(&mut self) -> Option<&'b str> {
        let (text, rest) = self.count().and_then(|len| self.bytes.split_at_checked(len))?;
        self.bytes = rest;
        core::str::from_utf8(text).ok()
    }
}

/// A value that can be serialized.
pub trait Stored: Sized {
    /// Writes it.
    fn store(&self, out: &mut Writer);

    /// Reads one; `None` if there is none.
    fn restore(from: &mut Reader<'_>) -> Option<Self>;
}

/// Implements [`Stored`] for a structure, field by field. A missing field is a compile error.
macro_rules! stored {
    ($name:ty { $($field:tt),* $(,)? }) => {
        $crate::stored::stored!($name { $($field),* } if |_| true);
    };
    ($name:ty { $($field:tt),* $(,)? } if $is_valid:expr) => {
        impl $crate::stored::Stored for $name {
            fn store(&self, out: &mut $crate::stored::Writer) {
                $($crate::stored::Stored::store(&self.$field, out);)*
            }

            fn restore(from: &mut $crate::stored::Reader<'_>) -> Option<Self> {
                let is_valid: fn(&Self) -> bool = $is_valid;
                let value = Self { $($field: $crate::stored::Stored::restore(from)?),* };
                is_valid(&value).then_some(value)
            }
        }
    };
}

/// Implements [`Stored`] for an enumeration. A missing variant is a compile error.
macro_rules! stored_enum {
    ($name:ty { $($variant:ident $(($($place:ident),+))? $({ $($field:ident),+ })?),+ $(,)? }) => {
        impl $crate::stored::Stored for $name {
            fn store(&self, out: &mut $crate::stored::Writer) {
                enum Tag { $($variant),+ }
                match self {
                    $(Self::$variant $(($($place),+))? $({ $($field),+ })? => {
                        $crate::stored::Stored::store(&(Tag::$variant as u8), out);
                        $($($crate::stored::Stored::store($place, out);)+)?
                        $($($crate::stored::Stored::store($field, out);)+)?
                    })+
                }
            }

            fn restore(from: &mut $crate::stored::Reader<'_>) -> Option<Self> {
                enum Tag { $($variant),+ }
                let tag: u8 = $crate::stored::Stored::restore(from)?;
                $(if tag == Tag::$variant as u8 {
                    $($(let $place = $crate::stored::Stored::restore(from)?;)+)?
                    $($(let $field = $crate::stored::Stored::restore(from)?;)+)?
                    return Some(Self::$variant $(($($place),+))? $({ $($field),+ })?);
                })+
                None
            }
        }
    };
}

pub(crate) use {stored, stored_enum};

impl Stored for u8 {
    fn store(&self, out: &mut Writer) {
        out.byte(*self);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        from.byte()
    }
}

impl Stored for bool {
    fn store(&self, out: &mut Writer) {
        out.byte(u8::from(*self));
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        match from.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

macro_rules! unsigned {
    ($($number:ty),+) => {
        $(impl Stored for $number {
            fn store(&self, out: &mut Writer) {
                out.number(*self as u64);
            }

            fn restore(from: &mut Reader<'_>) -> Option<Self> {
                from.number()?.try_into().ok()
            }
        })+
    };
}

unsigned!(u16, u32, u64, usize);

impl Stored for i64 {
    fn store(&self, out: &mut Writer) {
        out.number((*self << 1 ^ *self >> 63) as u64);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let value = from.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

impl Stored for i32 {
    fn store(&self, out: &mut Writer) {
        i64::from(*self).store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        i64::restore(from)?.try_into().ok()
    }
}

impl Stored for String {
    fn store(&self, out: &mut Writer) {
        out.text(self);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        from.text().map(String::from)
    }
}

impl Stored for Arc<str> {
    fn store(&self, out: &mut Writer) {
        out.text(self);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        from.text().map(Arc::from)
    }
}

impl Stored for &'static str {
    fn store(&self, out: &mut Writer) {
        let next = out.names.len() as u64;
        let number = *out.names.entry(self).or_insert(next);
        out.number(number);
        if number == next {
            out.text(self);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let number = usize::try_from(from.number()?).ok()?;
        if number == from.names.len() {
            let text = from.text()?;
            let name = (from.fixed)(text)?;
            from.names.push(name);
        }
        from.names.get(number).copied()
    }
}

impl<T: Stored> Stored for Option<T> {
    fn store(&self, out: &mut Writer) {
        self.is_some().store(out);
        if let Some(value) = self {
            value.store(out);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        match bool::restore(from)? {
            true => T::restore(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn store(&self, out: &mut Writer) {
        out.number(self.len() as u64);
        self.iter().for_each(|value| value.store(out));
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let count = from.count()?;
        let mut values = Vec::with_capacity(count.min(ROOM));
        for _ in 0..count {
            values.push(T::restore(from)?);
        }
        Some(values)
    }
}

impl<T: Stored, const N: usize> Stored for [T; N] {
    fn store(&self, out: &mut Writer) {
        self.iter().for_each(|value| value.store(out));
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let values = [(); N].map(|()| T::restore(from));
        match values.iter().all(Option::is_some) {
            true => values.into_iter().flatten().collect::<Vec<T>>().try_into().ok(),
            false => None,
        }
    }
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    fn store(&self, out: &mut Writer) {
        out.number(self.len() as u64);
        for (key, value) in self {
            key.store(out);
            value.store(out);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        (0..from.count()?).map(|_| Some((K::restore(from)?, V::restore(from)?))).collect()
    }
}

macro_rules! tuple {
    ($($part:ident $place:tt),+) => {
        impl<$($part: Stored),+> Stored for ($($part,)+) {
            fn store(&self, out: &mut Writer) {
                $(self.$place.store(out);)+
            }

            fn restore(from: &mut Reader<'_>) -> Option<Self> {
                Some(($($part::restore(from)?,)+))
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);

impl Stored for IpAddr {
    fn store(&self, out: &mut Writer) {
        match self {
            Self::V4(a) => (4u8, a.octets()).store(out),
            Self::V6(a) => (6u8, a.octets()).store(out),
        }
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        match from.byte()? {
            4 => <[u8; 4]>::restore(from).map(|a| Self::V4(Ipv4Addr::from(a))),
            6 => <[u8; 16]>::restore(from).map(|a| Self::V6(Ipv6Addr::from(a))),
            _ => None,
        }
    }
}

stored_enum!(rdmascope_dissector::frame::Addr { None, V4(a), V6(a), Lid(a), Mac(a) });
stored_enum!(rdmascope_dissector::frame::TunnelKind { Gre, Erspan1, Erspan2, Erspan3, Vxlan, Geneve, Ip });
stored!(rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate { magic, version, flags, send_size_code, receive_size_code });
stored!(rdmascope_dissector::wire::smb2::ioctl::NetworkInterface { index, rss, rdma, link_speed, address });

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use proptest::prelude::*;

    fn known(name: &str) -> Option<&'static str> {
        ["READ", "WRITE"].into_iter().find(|known| *known == name)
    }

    fn again<T: Stored>(value: &T) -> Option<T> {
        let mut out = Writer::default();
        value.store(&mut out);
        let bytes = out.into_bytes();
        // a part of it is nothing
        for len in 0..bytes.len() {
            let mut fixed = known;
            let mut from = Reader::new(&bytes[..len], &mut fixed);
            assert!(T::restore(&mut from).is_none(), "{len} of {} bytes", bytes.len());
        }
        let mut fixed = known;
        let mut from = Reader::new(&bytes, &mut fixed);
        T::restore(&mut from).filter(|_| from.is_empty())
    }

    #[test]
    fn values_come_back() {
        let numbers = (vec![0u64, 127, 128, u64::MAX], [0i64, -1, i64::MIN, i64::MAX], 65_535u16, Some(false));
        assert_eq!(again(&numbers), Some(numbers));
        let names = vec![("READ", 1u64), ("WRITE", 2), ("READ", 3)];
        assert_eq!(again(&names), Some(names));
        let texts = ("é".to_owned(), None::<u8>, Some(Arc::<str>::from("a file")));
        assert_eq!(again(&texts), Some(texts));
        let addresses = ["192.0.2.1", "fe80::1"].map(|a| a.parse::<IpAddr>().unwrap());
        assert_eq!(again(&addresses), Some(addresses));
        assert_eq!(again(&vec!["CLOSE"]), None, "not a name that is known");
    }

    #[test]
    fn a_count_takes_no_memory() {
        let mut fixed = known;
        let bytes = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2];
        assert!(Vec::<u64>::restore(&mut Reader::new(&bytes, &mut fixed)).is_none());
        assert!(u64::restore(&mut Reader::new(&[0xff; 10], &mut fixed)).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut fixed = known;
            let _ = <Vec<(String, Option<u32>, [i64; 3])>>::restore(&mut Reader::new(&bytes, &mut fixed));
        }
    }
}
