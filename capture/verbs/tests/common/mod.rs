//! The stand-in for libibverbs and librdmacm, built once per test binary.

#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// True if `cc` and rdma-core's headers are installed. If not, it says so; under CI that is a failure.
pub(crate) fn can_build() -> bool {
    let header =
        Path::new("/usr/include/rdma/rdma_cma.h").exists() && Path::new("/usr/include/infiniband/verbs.h").exists();
    let cc = Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success());
    let can = header && cc;
    if !can {
        let what = "not tested: cc, libibverbs-dev and librdmacm-dev are needed";
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("{what}");
    }
    can
}

/// A folder with a `libibverbs.so.1` and a `librdmacm.so.1` that are both the stand-in.
pub(crate) fn standin() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            can_build().then(|| {
                let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap().keep();
                // this file is also used by the crates above
                let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
                let source =
                    folders.find_map(|f| Some(f.join("capture/verbs/tests/standin.c")).filter(|f| f.exists())).unwrap();
                let library = folder.join("libibverbs.so.1");
                let built = Command::new("cc")
                    .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
                    .arg(&library)
                    .arg(source)
                    .output()
                    .unwrap();
                assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
                std::os::unix::fs::symlink(&library, folder.join("librdmacm.so.1")).unwrap();
                folder
            })
        })
        .as_deref()
}
