//! SMB2 and SMB3, \[MS-SMB2\].
pub mod compression;
