//! A capture that is opened again, from its index on disk: all that is seen is what reading shows, whatever is in the
//! folder of the indexes.

use super::*;
use crate::cache::Cache;
use std::fs::{self, File};
use std::sync::Arc;
use std::time::SystemTime;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A capture that has not changed for long, and a folder for indexes.
struct Bench {
    folder: tempfile::TempDir,
    capture: PathBuf,
    cache: Cache,
}

impl Bench {
    fn new(capture: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(capture.file_name().unwrap());
        fs::copy(capture, &copy).unwrap();
        let cache = Cache {
            folder: folder.path().join("cache/rdmascope"),
            program: "this build".to_owned(),
            least: 0,
            most: 1 << 30,
        };
        let bench = Self { folder, capture: copy, cache };
        bench.age(&bench.capture, YEAR);
        bench
    }

    fn age(&self, path: &Path, by: Duration) {
        File::open(path).unwrap().set_modified(SystemTime::now() - by).unwrap();
    }

    fn app_with(&self, options: Options, cache: &Cache) -> TestApp {
        let shared = Shared { cache: Some(Arc::new(cache.clone())), ..Shared::with(options) };
        TestApp::on(shared, std::slice::from_ref(&self.capture), 132, 40)
    }

    fn app(&self) -> TestApp {
        self.app_with(Options::default(), &self.cache)
    }

    /// The only index there is.
    fn index(&self) -> Option<PathBuf> {
        let found: Vec<PathBuf> = fs::read_dir(&self.cache.folder).ok()?.map(|e| e.unwrap().path()).collect();
        assert!(found.len() < 2, "{found:?}");
        found.into_iter().next()
    }
}

/// All that can be seen of a capture, and all that it is seen from.
fn seen(app: &mut TestApp) -> Vec<String> {
    app.app.model.is_kept = false;
    let model = &app.app.model;
    let mut all = vec![
        format!("{:?}", &**model.report),
        format!("{:?} {:?} {:?}", model.report.answer(model.time), &model.report.found[..], model.sums),
        format!("{:?}", model.index),
        format!("{:?}", model.exchanges.iter().collect::<Vec<_>>()),
        format!("{:?} {:?} {} {:?}", model.error, model.hardware, model.exchanges_dropped, model.progress),
    ];
    let ids: Vec<u32> = model.report.connections.iter().flat_map(|c| c.followed_as.clone()).collect();
    all.extend(ids.iter().map(|id| format!("{:?}", model.credits_log.of(*id))));
    let frames = model.index.len();
    for view in View::ALL {
        app.app.turn_to(*view);
        app.send(Msg::Resize(132, 40));
        all.push(app.screen());
    }
    for i in (0..frames).step_by(frames / 7 + 1) {
        let detail = app.trees.detail(i);
        let tree = &detail.tree;
        all.push(format!("{} {} {:?} {} {}", detail.number, detail.is_exact, detail.error, tree.protocol, tree.info));
        // a fault has the address of its bytes, which are mapped elsewhere each time
        let faults: Vec<_> =
            tree.faults.iter().map(|(fault, source, offset)| (fault.needed, fault.available, source, offset)).collect();
        all.push(format!("{:?} {:?} {faults:?}", tree.nodes, String::from_utf8_lossy(&tree.text)));
    }
    all
}

fn samples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples");
    let folders = fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir());
    let is_capture = |p: &PathBuf| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng");
    let mut all: Vec<PathBuf> =
        folders.flat_map(|f| fs::read_dir(f).unwrap()).map(|e| e.unwrap().path()).filter(is_capture).collect();
    all.sort();
    all
}

#[test]
fn every_sample_looks_the_same_from_its_index() {
    let samples = samples();
    assert!(samples.len() > 40, "{}", samples.len());
    for sample in samples {
        let bench = Bench::new(&sample);
        let mut first = bench.app();
        assert!(!first.app.model.is_kept && bench.index().is_some(), "{}", sample.display());
        let mut second = bench.app();
        assert!(second.app.model.is_kept, "{}", sample.display());
        for (was, is) in seen(&mut first).iter().zip(seen(&mut second)) {
            assert!(*was == is, "{}:\n{was}\n{is}", sample.display());
        }
    }
}

#[test]
fn a_filter_and_the_title_work_on_an_index() {
    let bench = Bench::new(&sample("smb-roce"));
    bench.app();
    let mut app = bench.app();
    assert!(app.screen().lines().next().unwrap().contains("from its index"), "{}", app.screen());
    app.keys("/");
    app.keys("smb2.cmd == 8\n");
    let mut plain = TestApp::open(std::slice::from_ref(&bench.capture), 132, 40);
    plain.keys("/");
    plain.keys("smb2.cmd == 8\n");
    assert_eq!(app.app.model.filter.found, plain.app.model.filter.found);
    assert!(!plain.app.model.filter.found.is_empty());
}

#[cfg(unix)]
#[test]
fn an_index_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(&sample("smb-roce"));
    bench.app();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let index = bench.index().unwrap();
    assert_eq!((mode(&index), mode(&bench.cache.folder)), (0o600, 0o700));
    // anybody could have written this
    fs::set_permissions(&index, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!bench.app().app.model.is_kept);
    assert!(bench.app().app.model.is_kept, "it was written anew");
    fs::set_permissions(&bench.cache.folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!bench.app().app.model.is_kept);
}

#[test]
fn an_index_of_something_else_is_none() {
    let bench = Bench::new(&sample("smb-roce"));
    bench.app();
    let index = fs::read(bench.index().unwrap()).unwrap();
    let is_kept = |what: &str, changes: &dyn Fn(&Bench)| {
        let bench = &bench;
        changes(bench);
        let kept = bench.app().app.model.is_kept;
        assert!(bench.app().app.model.is_kept, "{what}: it was written anew");
        kept
    };
    assert!(is_kept("nothing", &|_| {}));
    assert!(!is_kept("the time", &|b| b.age(&b.capture, YEAR / 2)));
    assert!(!is_kept("a byte at the beginning", &|b| {
        let time = fs::metadata(&b.capture).unwrap().modified().unwrap();
        let mut bytes = fs::read(&b.capture).unwrap();
        bytes[60] ^= 1;
        fs::write(&b.capture, bytes).unwrap();
        File::open(&b.capture).unwrap().set_modified(time).unwrap();
    }));
    assert!(!is_kept("the length", &|b| {
        let bytes = fs::read(&b.capture).unwrap();
        fs::write(&b.capture, &bytes[..bytes.len() - 4]).unwrap();
        b.age(&b.capture, YEAR);
    }));
    assert!(!is_kept("an earlier index", &|b| fs::write(b.index().unwrap(), &index).unwrap()));
    // another build, and other options
    let other = Cache { program: "another build".to_owned(), ..bench.cache.clone() };
    assert!(!bench.app_with(Options::default(), &other).app.model.is_kept);
    assert!(!bench.app().app.model.is_kept);
    assert!(!bench.app_with(Options { check_crc: false, ..Options::default() }, &bench.cache).app.model.is_kept);
}

#[test]
fn a_damaged_index_is_none() {
    let bench = Bench::new(&sample("smb-roce-negotiate-refused"));
    let mut first = bench.app();
    let expected = seen(&mut first);
    let path = bench.index().unwrap();
    let whole = fs::read(&path).unwrap();
    let step = whole.len() / 40;
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).step_by(step).map(|len| whole[..len].to_vec()).collect();
    damaged.push([&whole[..], b"x"].concat());
    for at in (0..whole.len()).step_by(step).chain(0..40).chain(whole.len() - 10..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let mut app = bench.app();
        assert!(!app.app.model.is_kept, "{} of {} bytes", bytes.len(), whole.len());
        assert!(fs::read(&path).unwrap() == whole, "it was written anew, and is the same");
        assert!(bytes.len() % 7 != 0 || seen(&mut app) == expected);
    }
}

#[test]
fn a_hostile_index_does_no_harm() {
    let bench = Bench::new(&sample("smb-roce"));
    bench.app();
    let path = bench.index().unwrap();
    let whole = fs::read(&path).unwrap();
    let head = 12 + u32::from_le_bytes(whole[8..12].try_into().unwrap()) as usize;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..400 {
        let mut bytes = whole[..whole.len() - 8].to_vec();
        for _ in 0..=round % 3 {
            let at = head + next(bytes.len() - head);
            bytes[at] = next(256) as u8;
        }
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes);
        bytes.extend(sum.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let mut app = bench.app();
        if app.app.model.is_kept {
            for view in View::ALL {
                app.app.turn_to(*view);
                app.send(Msg::Resize(100, 30));
                app.screen();
            }
        }
    }
}

#[test]
fn what_cannot_be_written_is_left_out() {
    let bench = Bench::new(&sample("smb-roce"));
    // a file is where the folder should be
    fs::write(bench.folder.path().join("cache"), "").unwrap();
    for _ in 0..2 {
        assert!(!bench.app().app.model.is_kept);
    }
    fs::remove_file(bench.folder.path().join("cache")).unwrap();
    // too small, too new, too large, with keys
    let least = Cache { least: 1 << 30, ..bench.cache.clone() };
    let most = Cache { most: 1000, ..bench.cache.clone() };
    let pins = Options { pins: vec![(1, 2)], ..Options::default() };
    let mut keyring = rdmascope_analyzer::keys::Keyring::new();
    keyring.add_password(None, "secret");
    bench.app_with(Options::default(), &least);
    bench.app_with(Options::default(), &most);
    bench.app_with(pins, &bench.cache);
    bench.app_with(Options { keyring, ..Options::default() }, &bench.cache);
    bench.age(&bench.capture, Duration::ZERO);
    bench.app();
    assert_eq!(bench.index(), None);
    bench.age(&bench.capture, YEAR);
    bench.app();
    assert!(bench.index().is_some());
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let bench = Bench::new(&sample("smb-roce"));
    bench.app();
    let index = bench.index().unwrap();
    let len = fs::metadata(&index).unwrap().len();
    let names = |folder: &Path| {
        let mut all: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    };
    let own = index.file_name().unwrap().to_str().unwrap().to_owned();
    let folder = &bench.cache.folder;
    for (name, days) in
        [("1.index", 3), ("2.index", 2), ("3.index", 1), (".4.index.abcdef", 2), (".5.index.abcdef", 0), ("notes", 9)]
    {
        fs::write(folder.join(name), vec![0; len as usize]).unwrap();
        bench.age(&folder.join(name), Duration::from_secs(days * 25 * 60 * 60));
    }
    fs::remove_file(&index).unwrap();
    let cache = Cache { most: 3 * len, ..bench.cache.clone() };
    bench.app_with(Options::default(), &cache);
    let mut left = vec!["2.index", "3.index", ".5.index.abcdef", "notes", &own];
    left.sort_unstable();
    assert_eq!(names(folder), left);
}
