//! Counts the allocations of each thread of a test binary. Other crates' tests include this file by its path.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counter;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

/// Number of allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}
