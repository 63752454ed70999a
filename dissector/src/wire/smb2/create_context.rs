//! The create contexts of a CREATE, \[MS-SMB2\] 2.2.13.2 and 2.2.14.2: a list of named values.

use super::blob::{Blob, number};
use crate::field::Def;
use crate::trace::{Trace, Value};

/// One create context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// Four characters, or 16 bytes of a GUID.
    pub name: &'a [u8],
    /// Its data.
    pub data: &'a [u8],
}

/// Walks a list of create contexts. Ends at the first that points outside of the list.
#[derive(Clone, Copy, Debug)]
pub struct Contexts<'a>(Option<&'a [u8]>);

impl<'a> Contexts<'a> {
    pub(super) const fn of(list: &'a [u8]) -> Self {
        Self(Some(list))
    }
}

impl<'a> Iterator for Contexts<'a> {
    type Item = Context<'a>;

    fn next(&mut self) -> Option<Context<'a>> {
        let list = self.0.filter(|l| l.len() >= 16)?;
        let next = number(list, 0, 4) as usize;
        // the entry reaches to the next one
        let entry = if next == 0 { list } else { &list[..next.min(list.len())] };
        self.0 = if next >= 16 { list.get(next..) } else { None };
        let name = Blob::of(entry, 16, number(entry, 4, 2) as u32, number(entry, 6, 2) as u32);
        let data = Blob::of(entry, 16, number(entry, 10, 2) as u32, number(entry, 12, 4) as u32);
        Some(Context { name: name.bytes, data: data.bytes })
    }
}

/// Tells a list of contexts as subtree `def`; `response` says which of the two forms of each.
pub(super) fn tell_list<T: Trace>(def: Def, list: &[u8], _response: bool, t: &mut T) {
    if T::ON && !list.is_empty() {
        t.field(def, list, list.len(), Value::None);
    }
}
