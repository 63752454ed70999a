//! Storage over RDMA in virtual time, with a link that loses, copies, delays, damages and cuts, ends that break rules,
//! and an observer who does not see everything. The truth comes from the ends and the link alone; the analysis of
//! `rdmascope-analyzer` is compared with it.
//!
//! ```text
//! seed ─▶ Plan ─▶ World (End ⇄ Transport ⇄ Link ⇄ Transport ⇄ End) ─▶ Truth
//!                                     │ tap
//!                                 Observer ─▶ capture ─▶ analysis ─▶ assess ◀─ Truth
//! ```
#![forbid(unsafe_code)]

pub mod assess;
pub mod end;
pub mod endpoint;
pub mod fault;
pub mod frame;
pub mod memory;
pub mod nfs;
pub mod nfs_host;
pub mod observer;
pub mod packet;
pub mod plan;
pub mod random;
pub mod rc;
pub mod smb;
pub mod smb_host;
pub mod tcp;
pub mod transport;
pub mod world;

use assess::Assessment;
use observer::Record;
use plan::{Overrides, Plan};
use random::Random;
use world::World;

/// Result of running a seed.
pub struct Run {
    /// The plan that the seed gave.
    pub plan: Plan,
    /// The ends, and the record of events.
    pub world: World,
    /// The capture.
    pub records: Vec<Record>,
    /// The report of the analysis.
    pub report: rdmascope_analyzer::report::Report,
    /// Assessment of the report.
    pub verdict: Assessment,
}

/// Runs a seed.
pub fn run(seed: u64, overrides: &Overrides) -> Run {
    let plan = Plan::new(seed, overrides);
    let mut world = plan.world();
    world.run();
    let records = plan.observer.look(&world.truth.passed(), &mut Random::new(seed, 6));
    let (report, kept) = assess::analyze(&records);
    let verdict = assess::assess(&plan, &world, &report, &kept);
    Run { plan, world, records, report, verdict }
}
