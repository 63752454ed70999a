//! SPNEGO, RFC 4178, and the GSS-API token around it, RFC 2743 3.1: how client and server find a mechanism of
//! authentication, and what carries its tokens.

use crate::field::Def;
use crate::trace::{Trace, Value};

/// Tells the security blob `bytes` of a NEGOTIATE or SESSION_SETUP as field `def`.
pub(super) fn security_blob<T: Trace>(def: Def, bytes: &[u8], t: &mut T) {
    if T::ON && !bytes.is_empty() {
        t.field(def, bytes, bytes.len(), Value::Bytes(bytes));
    }
}
