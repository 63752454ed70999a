//! InfiniBand transport packets, native and over Ethernet (RoCE): IBA volume 1 chapter 9, annexes A16 and A17.
pub mod bth;
pub mod ext;
