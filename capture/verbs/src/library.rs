//! Loads libibverbs and librdmacm, once, and keeps them: drivers have threads and pages of their own, so that they are
//! never unloaded.

#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::sys::{self, ibverbs, rdmacm};
use libloading::Library;
use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

/// File names by the ABI that is spoken here.
const IBVERBS: &str = "libibverbs.so.1";
const RDMACM: &str = "librdmacm.so.1";

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $module:ident: $($function:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $function: $module::$function,)*
        }

        impl $name {
            fn of(library: &Library, file: &str) -> Result<Self> {
                Ok(Self {
                    $($function: {
                        const NAME: &str = concat!($prefix, stringify!($function));
                        // SAFETY: the type is that of the function of this name in rdma-core's headers, whose ABI the
                        // file's version guarantees; the library is never unloaded, so that the pointer stays valid.
                        let symbol = unsafe { library.get::<$module::$function>(NAME.as_bytes()) };
                        *symbol.map_err(|_| Error::Function { library: file.to_owned(), function: NAME })?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of libibverbs.
    IbVerbs, "ibv_", ibverbs: get_device_list free_device_list open_device close_device query_device query_port alloc_pd dealloc_pd
    reg_mr dereg_mr create_comp_channel destroy_comp_channel create_cq destroy_cq get_cq_event ack_cq_events create_qp modify_qp query_qp
    destroy_qp wc_status_str
}

functions! {
    /// Functions of librdmacm.
    RdmaCm, "rdma_", rdmacm: create_event_channel destroy_event_channel create_id destroy_id migrate_id bind_addr resolve_addr
    resolve_route create_qp destroy_qp connect listen accept reject disconnect get_cm_event ack_cm_event get_src_port
}

struct Loaded {
    ibverbs: IbVerbs,
    /// Only connections need it.
    rdmacm: Result<RdmaCm, (String, String)>,
}

/// The libraries, loaded. Copies are the same.
#[derive(Clone, Copy)]
pub struct Verbs(&'static Loaded);

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Verbs {{ rdmacm: {} }}", self.0.rdmacm.is_ok())
    }
}

impl Verbs {
    /// The system's libraries.
    ///
    /// # Errors
    /// [`Error::Missing`] if libibverbs is not installed.
    pub fn load() -> Result<Self> {
        static LOADED: OnceLock<Verbs> = OnceLock::new();
        if let Some(verbs) = LOADED.get() {
            return Ok(*verbs);
        }
        let verbs = Self::open(|name| name.into())?;
        Ok(*LOADED.get_or_init(|| verbs))
    }

    /// Loads the libraries from a folder: stand-ins, for tests.
    ///
    /// # Errors
    /// [`Error::Missing`] if they are not there.
    pub fn load_from(folder: &Path) -> Result<Self> {
        Self::open(|name| folder.join(name).into())
    }

    fn open(path: impl Fn(&str) -> OsString) -> Result<Self> {
        let load = |name: &str| {
            // SAFETY: loading runs the library's initialisers. These two libraries are loaded by rdma-core's names on
            // this system.
            let library = unsafe { Library::new(path(name)) };
            // kept for good, see above
            library.map(|library| &*Box::leak(Box::new(library))).map_err(|e| (name.to_owned(), e.to_string()))
        };
        let library = load(IBVERBS).map_err(|(library, why)| Error::Missing { library, why })?;
        let ibverbs = IbVerbs::of(library, IBVERBS)?;
        let rdmacm = load(RDMACM)
            .and_then(|library| RdmaCm::of(library, RDMACM).map_err(|e| (RDMACM.to_owned(), e.to_string())));
        Ok(Self(Box::leak(Box::new(Loaded { ibverbs, rdmacm }))))
    }

    pub(crate) fn ib(self) -> &'static IbVerbs {
        &self.0.ibverbs
    }

    pub(crate) fn cm(self) -> Result<&'static RdmaCm> {
        self.0.rdmacm.as_ref().map_err(|(library, why)| Error::Missing { library: library.clone(), why: why.clone() })
    }
}

/// A member of the [`sys::verbs_context`] around a context, if the library is new enough to have it and the driver
/// implements it.
macro_rules! extended {
    ($context:expr, $member:ident) => {{
        let context: *mut $crate::sys::ibv_context = $context;
        // SAFETY: the context comes from the library and is open, and stays so until its owner is gone.
        match unsafe { $crate::library::around(context) } {
            Some((extended, size)) => {
                let needed = size_of::<$crate::sys::verbs_context>()
                    - ::std::mem::offset_of!($crate::sys::verbs_context, $member);
                // SAFETY: the library reports that this many bytes of it exist.
                if size >= needed { unsafe { (*extended).$member } } else { None }
            }
            None => None,
        }
    }};
}
pub(crate) use extended;

/// The extended context around a context, and how many bytes of it there are, counted from its end.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn around(context: *mut sys::ibv_context) -> Option<(*const sys::verbs_context, usize)> {
    // SAFETY: by the caller. If `abi_compat` says so, the context is the last member of a verbs_context (verbs_get_ctx
    // in infiniband/verbs.h), and `sz` lies right before it.
    unsafe {
        if (*context).abi_compat as usize != sys::VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let extended: *const sys::verbs_context =
            context.byte_sub(std::mem::offset_of!(sys::verbs_context, context)).cast();
        Some((extended, (&raw const (*extended).sz).read()))
    }
}

/// A C string in an array of the headers.
pub(crate) fn text(bytes: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of the library for a status.
pub(crate) fn status(verbs: Verbs, status: sys::c_enum) -> String {
    // SAFETY: takes any number, and returns a string that lives as long as the library.
    let words = unsafe { std::ffi::CStr::from_ptr((verbs.ib().wc_status_str)(status)) };
    format!("{} ({status})", words.to_string_lossy())
}
