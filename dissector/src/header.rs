//! The three macros of declaration. What is declared here is declared nowhere else: struct, parser, encoder, tree,
//! labels, filter names and registry rows all come from one line a field.
//!
//! ```
//! use rdmascope_dissector::{header, trace::{Off, Tree}};
//! header! {
//!     /// What opens the frame.
//!     pub struct Toy [TOY = "toy", "Toy header", "RFC 0000 1"] {
//!         /// Who it is for.
//!         port: be16 = "toy.port", "Port", dec;
//!         flags: u8 = "toy.flags", "Flags", hex, bits {
//!             urgent: bool & 0x80 = "toy.flags.urgent", "Urgent";
//!             kind: u8 & 0x0f = "toy.kind", "Kind", dec, values &[(1, "Question"), (2, "Answer")];
//!         };
//!     }
//! }
//! let bytes = [0x01, 0xbd, 0x82, 0xff];
//! let (rest, toy) = Toy::parse(&bytes, &mut Off).unwrap();
//! assert_eq!((toy.port, toy.urgent(), toy.kind(), rest), (445, true, 2, &[0xff][..]));
//!
//! let mut tree = Tree::new();
//! tree.begin(&bytes);
//! Toy::parse(&bytes, &mut tree).unwrap();
//! assert_eq!(tree.number("toy.kind"), Some(2));
//!
//! let mut out = Vec::new();
//! toy.emit(&mut out);
//! assert_eq!(out, bytes[..3]);
//!
//! // the bits by name, for those who write them
//! use rdmascope_dissector::field::Fields;
//! type Flags = <Toy as Fields>::Bits;
//! const URGENT: u8 = Flags::urgent.mask as u8;
//! assert_eq!(toy.flags & URGENT, 0x80);
//! ```
//!
//! Integer types: `u8 le16 le24 le32 le64 be16 be24 be32 be48 be64`. Byte types: `bytes[N] ipv4 ipv6 ether guid eui64`.
//! Times: `filetime` (100 ns since 1601, little-endian). After the label: base (`dec` where left out, `hex`, `oct`,
//! `dechex`, `hexdec`), then `values TABLE`, then `bits { … }`. Between type and name `as` says what the field gives
//! away ([`Privacy`](crate::field::Privacy)), where its kind does not say it. A field named `_` in quotes (`"_"`) has
//! only its bits in the tree. The subtree of a header is of kind `None`; where Wireshark gives it another, write
//! `[NODE: Bytes = "name", …]`.

/// A header of fixed length. See the [module](self).
#[macro_export]
macro_rules! header {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident [$NODE:ident $(: $nkind:ident)? = $node:literal, $title:literal, $spec:literal] {
            $( $(#[$fmeta:meta])*
               $f:ident : $ty:ident $([$n:literal])? $(as $privacy:ident)? = $fname:literal, $flabel:literal $(, $base:ident)? $(, values $vals:expr)?
               $(, bits { $( $(#[$bmeta:meta])* $b:ident : $bty:ident & $mask:literal = $bname:literal, $blabel:literal $(, $bbase:ident)? $(, values $bvals:expr)? ; )+ })? ;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $Name { $( $(#[$fmeta])* #[doc = concat!("`", $fname, "`")] pub $f: $crate::header!(@rust $ty $([$n])?), )+ }

        #[allow(non_upper_case_globals, missing_docs)]
        const _: () = {
            use $crate::field::{Base, FieldDef, Fields, Kind, Privacy, id_of};
            /// The bit fields: methods of the same names read them, so their declarations need a place of their own.
            #[allow(missing_debug_implementations, unreachable_pub)]
            pub struct Bits;
            impl $Name {
                pub const $NODE: $crate::field::Def = {
                    static DEF: FieldDef = FieldDef { name: $node, id: id_of($node), label: $title, kind: $crate::header!(@nodekind $($nkind)?), base: Base::None, mask: 0, width: 0, values: &[], spec: $spec, privacy: Privacy::Inside, hidden: false };
                    &DEF
                };
                $( pub const $f: $crate::field::Def = {
                       static DEF: FieldDef = FieldDef { name: $fname, id: id_of($fname), label: $flabel, kind: $crate::header!(@kind $ty),
                           base: $crate::header!(@base $ty $($base)?), mask: 0, width: 0, values: $crate::header!(@vals $($vals)?), spec: $spec,
                           privacy: $crate::header!(@privacy $crate::header!(@kind $ty) $(, $privacy)?), hidden: false };
                       &DEF
                   }; )+
            }
            impl Bits {
                $( $($( pub const $b: $crate::field::Def = {
                       static DEF: FieldDef = FieldDef { name: $bname, id: id_of($bname), label: $blabel, kind: $crate::header!(@bitkind $bty $ty),
                           base: $crate::header!(@bitbase $bty $($bbase)?), mask: $mask, width: 8 * $crate::header!(@len $ty) as u8,
                           values: $crate::header!(@vals $($bvals)?), spec: $spec, privacy: Privacy::Keep, hidden: false };
                       &DEF
                   }; )+)? )+
            }
            impl Fields for $Name {
                type Bits = Bits;
                const FIELDS: &'static [$crate::field::Def] = &[ $Name::$NODE, $( $Name::$f, $($( Bits::$b, )+)? )+ ];
            }

        impl $Name {
            /// Its fields and its subtree.
            pub const SET: $crate::field::FieldSet = $crate::field::FieldSet::of(<Self as Fields>::FIELDS);
            /// Length on the wire, in bytes.
            pub const LEN: usize = 0 $( + $crate::header!(@len $ty $([$n])?) )+;

            /// Decodes the header in a subtree of its own; the observer sees every field with its byte range.
            /// If the input is too short, the fields present are seen, and the fault names the first missing one.
            #[inline]
            pub fn parse<'a, T: $crate::trace::Trace>(i: &'a [u8], t: &mut T) -> $crate::fault::PResult<'a, Self> {
                $crate::trace::scope(Self::$NODE, i, t, Self::parse_flat)
            }

            /// The same, in the subtree that is open.
            #[inline]
            pub fn parse_flat<'a, T: $crate::trace::Trace>(i: &'a [u8], t: &mut T) -> $crate::fault::PResult<'a, Self> {
                if T::ON && !t.wants(&Self::SET) {
                    return Self::parse_flat(i, &mut $crate::trace::Off);
                }
                match i.split_first_chunk::<{ Self::LEN }>() {
                    // one bounds check for all fields: the compiler knows the length of `head`
                    Some((head, rest)) => { let (_, header) = Self::fields(head, t)?; Ok((rest, header)) }
                    None => Self::fields(i, t),
                }
            }

            #[inline(always)]
            fn fields<'a, T: $crate::trace::Trace>(i: &'a [u8], t: &mut T) -> $crate::fault::PResult<'a, Self> {
                $( let at = i;
                   let Ok((i, $f)) = $crate::header!(@leaf at, $ty $([$n])?) else {
                       return $crate::fault::Fault::short(Some(Self::$f), at, $crate::header!(@len $ty $([$n])?)).fail();
                   };
                   if T::ON {
                       if $fname != "_" {
                           t.field(Self::$f, at, $crate::header!(@len $ty $([$n])?), $crate::header!(@value at, $f, $ty $([$n])?));
                           $crate::header!(@down t $($($b)+)?);
                       } else {
                           t.unshown(at, $crate::header!(@len $ty $([$n])?));
                       }
                       $($( t.field(Bits::$b, at, $crate::header!(@len $ty), $crate::trace::Value::U((u64::from($f) & $mask) >> u64::trailing_zeros($mask))); )+)?
                       if $fname != "_" { $crate::header!(@up t $($($b)+)?); }
                   }
                )+
                Ok((i, Self { $( $f ),+ }))
            }

            /// Encodes the header at the end of `out`.
            pub fn emit(&self, out: &mut $crate::header::Vec<u8>) {
                $( $crate::header!(@emit self.$f, out, $ty); )+
            }

            $($($(
                $(#[$bmeta])*
                #[doc = concat!("`", $bname, "`")]
                #[inline]
                pub const fn $b(&self) -> $crate::header!(@bitrust $bty) {
                    $crate::header!(@bitget $bty, (self.$f as u64 & $mask) >> u64::trailing_zeros($mask))
                }
            )+)?)+
        }
        };
    };

    (@rust u8) => {u8}; (@rust le16) => {u16}; (@rust le24) => {u32}; (@rust le32) => {u32}; (@rust le64) => {u64};
    (@rust be16) => {u16}; (@rust be24) => {u32}; (@rust be32) => {u32}; (@rust be48) => {u64}; (@rust be64) => {u64};
    (@rust filetime) => {u64}; (@rust bytes [$n:literal]) => {[u8; $n]}; (@rust ipv4) => {[u8; 4]}; (@rust ipv6) => {[u8; 16]};
    (@rust ether) => {[u8; 6]}; (@rust guid) => {[u8; 16]}; (@rust eui64) => {[u8; 8]};

    (@len u8) => {1}; (@len le16) => {2}; (@len le24) => {3}; (@len le32) => {4}; (@len le64) => {8};
    (@len be16) => {2}; (@len be24) => {3}; (@len be32) => {4}; (@len be48) => {6}; (@len be64) => {8};
    (@len filetime) => {8}; (@len bytes [$n:literal]) => {$n}; (@len ipv4) => {4}; (@len ipv6) => {16};
    (@len ether) => {6}; (@len guid) => {16}; (@len eui64) => {8}; (@len bytes) => {0};

    (@kind u8) => {Kind::U8}; (@kind le16) => {Kind::U16}; (@kind le24) => {Kind::U24}; (@kind le32) => {Kind::U32}; (@kind le64) => {Kind::U64};
    (@kind be16) => {Kind::U16}; (@kind be24) => {Kind::U24}; (@kind be32) => {Kind::U32}; (@kind be48) => {Kind::U48}; (@kind be64) => {Kind::U64};
    (@kind filetime) => {Kind::AbsTime}; (@kind bytes) => {Kind::Bytes}; (@kind ipv4) => {Kind::Ipv4}; (@kind ipv6) => {Kind::Ipv6};
    (@kind ether) => {Kind::Ether}; (@kind guid) => {Kind::Guid}; (@kind eui64) => {Kind::Eui64};

    (@base bytes) => {Base::None}; (@base ipv4) => {Base::None}; (@base ipv6) => {Base::None}; (@base ether) => {Base::None};
    (@base guid) => {Base::None}; (@base eui64) => {Base::None}; (@base filetime) => {Base::None};
    (@base $ty:ident) => {Base::Dec}; (@base $ty:ident dec) => {Base::Dec}; (@base $ty:ident hex) => {Base::Hex}; (@base $ty:ident oct) => {Base::Oct};
    (@base $ty:ident dechex) => {Base::DecHex}; (@base $ty:ident hexdec) => {Base::HexDec};

    (@bitkind bool $ty:ident) => {Kind::Bool}; (@bitkind u8 $ty:ident) => {Kind::U8}; (@bitkind u16 $ty:ident) => {Kind::U16};
    (@bitkind u24 $ty:ident) => {Kind::U24}; (@bitkind u32 $ty:ident) => {Kind::U32}; (@bitkind u64 $ty:ident) => {Kind::U64};
    (@bitbase bool) => {Base::None}; (@bitbase $bty:ident $($base:ident)?) => {$crate::header!(@base u8 $($base)?)};
    (@bitrust bool) => {bool}; (@bitrust u8) => {u8}; (@bitrust u16) => {u16}; (@bitrust u24) => {u32}; (@bitrust u32) => {u32}; (@bitrust u64) => {u64};
    (@bitget bool, $e:expr) => {$e != 0}; (@bitget u24, $e:expr) => {($e) as u32}; (@bitget $bty:ident, $e:expr) => {($e) as $bty};

    (@privacy $kind:expr) => {$crate::field::Privacy::of($kind)}; (@privacy $kind:expr, $privacy:ident) => {$crate::field::Privacy::$privacy};

    (@nodekind) => {Kind::None}; (@nodekind $k:ident) => {Kind::$k};
    (@vals) => {&[]}; (@vals $v:expr) => {$v};
    (@down $t:ident) => {}; (@down $t:ident $($b:ident)+) => {$t.down()};
    (@up $t:ident) => {}; (@up $t:ident $($b:ident)+) => {$t.up()};

    (@leaf $i:ident, filetime) => {$crate::leaf::le64($i)};
    (@leaf $i:ident, bytes [$n:literal]) => {$crate::leaf::array::<$n>($i)};
    (@leaf $i:ident, ipv4) => {$crate::leaf::array::<4>($i)}; (@leaf $i:ident, ipv6) => {$crate::leaf::array::<16>($i)};
    (@leaf $i:ident, ether) => {$crate::leaf::array::<6>($i)}; (@leaf $i:ident, guid) => {$crate::leaf::array::<16>($i)};
    (@leaf $i:ident, eui64) => {$crate::leaf::array::<8>($i)};
    (@leaf $i:ident, $ty:ident) => {$crate::leaf::$ty($i)};

    (@value $at:ident, $f:ident, filetime) => {$crate::header::filetime($f)};
    (@value $at:ident, $f:ident, bytes [$n:literal]) => {$crate::trace::Value::Bytes(&$at[..$n])};
    (@value $at:ident, $f:ident, ipv4) => {$crate::trace::Value::Bytes(&$at[..4])};
    (@value $at:ident, $f:ident, ipv6) => {$crate::trace::Value::Bytes(&$at[..16])};
    (@value $at:ident, $f:ident, ether) => {$crate::trace::Value::Bytes(&$at[..6])};
    (@value $at:ident, $f:ident, guid) => {$crate::trace::Value::Bytes(&$at[..16])};
    (@value $at:ident, $f:ident, eui64) => {$crate::trace::Value::Bytes(&$at[..8])};
    (@value $at:ident, $f:ident, $ty:ident) => {$crate::trace::Value::U(u64::from($f))};

    (@emit $s:ident . $f:ident, $o:ident, le24) => {$o.extend_from_slice(&$s.$f.to_le_bytes()[..3])};
    (@emit $s:ident . $f:ident, $o:ident, be24) => {$o.extend_from_slice(&$s.$f.to_be_bytes()[1..])};
    (@emit $s:ident . $f:ident, $o:ident, be48) => {$o.extend_from_slice(&$s.$f.to_be_bytes()[2..])};
    (@emit $s:ident . $f:ident, $o:ident, u8) => {$o.push($s.$f)};
    (@emit $s:ident . $f:ident, $o:ident, le16) => {$o.extend_from_slice(&$s.$f.to_le_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, le32) => {$o.extend_from_slice(&$s.$f.to_le_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, le64) => {$o.extend_from_slice(&$s.$f.to_le_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, filetime) => {$o.extend_from_slice(&$s.$f.to_le_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, be16) => {$o.extend_from_slice(&$s.$f.to_be_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, be32) => {$o.extend_from_slice(&$s.$f.to_be_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, be64) => {$o.extend_from_slice(&$s.$f.to_be_bytes())};
    (@emit $s:ident . $f:ident, $o:ident, $ty:ident) => {$o.extend_from_slice(&$s.$f)};
}

/// Fields and subtrees that are not part of a fixed header: one line each, read with [`crate::leaf::read`]. `[hidden]`
/// before the name: the field only repeats others for filters.
///
/// ```
/// use rdmascope_dissector::{fields, field::{Fields, Kind}};
/// fields! {
///     /// Fields of the toy protocol's variable part.
///     pub mod toy ["RFC 0000 2"] {
///         PROTOCOL: Protocol = "toy", "Toy protocol";
///         NAME: Utf16 = "toy.name", "Name";
///         COUNT: U32 = "toy.count", "Count", dec;
///         KIND: U8 = "toy.kind", "Kind", dec, values &[(1, "Question")];
///         LAST: Bool & 0x80000000 / 32 = "toy.last", "Last";
///     }
/// }
/// assert_eq!((toy::COUNT.name, toy::COUNT.kind, toy::All::FIELDS.len()), ("toy.count", Kind::U32, 5));
/// ```
#[macro_export]
macro_rules! fields {
    (
        $(#[$meta:meta])*
        pub mod $module:ident [$spec:literal] {
            $( $(#[$fmeta:meta])* $F:ident : $kind:ident $(as $privacy:ident)? $(& $mask:literal / $width:literal)? $([$hidden:ident])? = $name:literal, $label:literal $(, $base:ident)? $(, values $vals:expr)? ; )+
        }
    ) => {
        $(#[$meta])*
        pub mod $module {
            #[allow(unused_imports)]
            use super::*;
            use $crate::field::{Base, Def, FieldDef, Fields, Kind, id_of};
            $( $(#[$fmeta])* #[doc = concat!("`", $name, "`")]
               pub const $F: Def = {
                   static DEF: FieldDef = FieldDef { name: $name, id: id_of($name), label: $label, kind: Kind::$kind, base: $crate::fields!(@base $kind $($base)?),
                       mask: 0 $(+ $mask)?, width: 0 $(+ $width)?, values: $crate::header!(@vals $($vals)?), spec: $spec,
                       privacy: $crate::header!(@privacy Kind::$kind $(, $privacy)?), hidden: $crate::fields!(@hidden $($hidden)?) };
                   &DEF
               }; )+
            /// The fields of this block.
            #[derive(Clone, Copy, Debug)]
            pub struct All;
            impl Fields for All { type Bits = (); const FIELDS: &'static [Def] = &[ $( $F, )+ ]; }
            /// The same, as a set.
            #[allow(dead_code)]
            pub const SET: $crate::field::FieldSet = $crate::field::FieldSet::of(All::FIELDS);
        }
    };
    (@hidden) => {false}; (@hidden hidden) => {true};
    (@base $kind:ident dec) => {Base::Dec}; (@base $kind:ident hex) => {Base::Hex}; (@base $kind:ident oct) => {Base::Oct};
    (@base $kind:ident dechex) => {Base::DecHex}; (@base $kind:ident hexdec) => {Base::HexDec};
    (@base U8) => {Base::Dec}; (@base U16) => {Base::Dec}; (@base U24) => {Base::Dec}; (@base U32) => {Base::Dec}; (@base U40) => {Base::Dec};
    (@base U48) => {Base::Dec}; (@base U56) => {Base::Dec}; (@base U64) => {Base::Dec};
    (@base I8) => {Base::Dec}; (@base I16) => {Base::Dec}; (@base I32) => {Base::Dec}; (@base I64) => {Base::Dec};
    (@base $kind:ident) => {Base::None};
}

/// The named values of an integer on the wire. Unknown ones survive: the type is the integer with names.
///
/// ```
/// rdmascope_dissector::wire_enum! {
///     /// What it is.
///     pub enum Verb: u8 { SEND = 0x03, "Send"; WRITE = 0x00, "Write"; }
/// }
/// assert_eq!((Verb::SEND.name(), Verb(0x77).name(), Verb::VALUES.len()), (Some("Send"), None, 2));
/// ```
#[macro_export]
macro_rules! wire_enum {
    ( $(#[$meta:meta])* pub enum $Name:ident : $repr:ident { $( $(#[$vmeta:meta])* $V:ident = $value:literal, $text:literal ; )+ } ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $Name(pub $repr);
        impl $Name {
            $( $(#[$vmeta])* #[doc = concat!("`", stringify!($value), "`: ", $text)] pub const $V: Self = Self($value); )+
            /// Every named value, ascending.
            pub const VALUES: $crate::field::Values = {
                const TABLE: [(u64, &str); [$($value as u64),+].len()] = $crate::header::sorted([ $( ($value as u64, $text), )+ ]);
                &TABLE
            };
            /// The name, where the value has one.
            pub fn name(self) -> Option<&'static str> { $crate::field::name_of(Self::VALUES, u64::from(self.0)) }
        }
        impl From<$repr> for $Name { fn from(v: $repr) -> Self { Self(v) } }
        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() { Some(n) => f.write_str(n), None => write!(f, "{:#x}", self.0) }
            }
        }
        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result { core::fmt::Display::fmt(self, f) }
        }
    };
}

#[doc(hidden)]
pub use alloc::vec::Vec;

use crate::trace::Value;

/// A Windows FILETIME (100 ns units since 1601-01-01 UTC) as time since the Unix epoch. 0, which says that there is no
/// time, becomes the Unix epoch, as in Wireshark.
pub const fn filetime(ticks: u64) -> Value<'static> {
    if ticks == 0 {
        return Value::Time { seconds: 0, nanos: 0 };
    }
    const EPOCH_DIFFERENCE_SECONDS: i64 = 11_644_473_600;
    Value::Time {
        seconds: (ticks / 10_000_000) as i64 - EPOCH_DIFFERENCE_SECONDS,
        nanos: (ticks % 10_000_000) as u32 * 100,
    }
}

/// Sorts a table of values at compile time, so that look-ups may search by halves.
#[doc(hidden)]
pub const fn sorted<const N: usize>(mut table: [(u64, &'static str); N]) -> [(u64, &'static str); N] {
    let mut i = 1;
    while i < N {
        let mut j = i;
        while j > 0 && table[j - 1].0 > table[j].0 {
            let swap = table[j];
            table[j] = table[j - 1];
            table[j - 1] = swap;
            j -= 1;
        }
        i += 1;
    }
    table
}
