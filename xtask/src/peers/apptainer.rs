//! Apptainer in a private root.
//!
//! | | |
//! |---|---|
//! | needs | root; Debian's mmdebstrap, and the packages of Debian unstable |
//! | private | its root file system; `/tmp` and the shared directory are the machine's, with the same paths |
//! | cleans up | its cgroup is killed, with every instance in it, and its cell ends; root and images stay |
//!
//! Debian 12 and 13 have no Apptainer, and that of unstable needs a newer C library, so it gets a
//! private root. The root must be entered with pivot_root, because Apptainer refuses to set up
//! mounts in a plain chroot. Apptainer runs as an ordinary user, as on the machines it is made for.
//!
//! The cell shares the process ids of the machine so that the launch script can execute Apptainer:
//! a signal to the script is a signal to Apptainer. Processes left by instances are found by their
//! cgroup.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::apt::Need;
use super::cell::{self, Cell, Isolation, Process, Spec};
use super::dirs::{self, Dirs};
use super::images::{self, Image};
use super::report::{Access, ApptainerImage, User};
use super::run;
use super::user;

pub(crate) const NAME: &str = "apptainer";

pub(crate) const NEEDS: &[Need] =
    &[Need { program: "newuidmap", package: "uidmap" }, Need { program: "nsenter", package: "util-linux" }];

/// The second option accepts the expired index of unstable on the mirror.
const ROOT_OPTIONS: &[&str] = &[
    "--quiet",
    "--mode=root",
    "--variant=apt",
    "--aptopt=Acquire::Check-Valid-Until \"false\"",
    "--include=apptainer,ca-certificates,mount,squashfuse,tzdata",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "sid",
];

/// Builds the private root if it is not there yet.
pub(crate) fn ensure_root(dirs: &Dirs) -> Result<()> {
    let root = root(dirs);
    if root.exists() {
        return Ok(());
    }
    eprintln!("peers: apptainer: building its private root");
    dirs::make(&dirs.state("apptainer"), 0o755)?;
    // The images and the home of the user belong to an earlier recipe and are created again.
    down(dirs)?;
    dirs::keep_only(&dirs.state("apptainer"), &[])?;
    let fresh = dirs.state("tmp/apptainer-root");
    let mut command = run::contained("mmdebstrap");
    command.args(ROOT_OPTIONS).arg(&fresh);
    run::logged(run::online(&mut command), Duration::from_secs(900), &dirs.log("apptainer-root"))
        .context("building Apptainer's root")?;
    fs::rename(&fresh, &root).context("keeping Apptainer's root")
}

/// Makes Apptainer ready to launch, with the images.
pub(crate) fn up(dirs: &Dirs) -> Result<()> {
    let user = user::ensure()?;
    let home = dirs.state("apptainer/home");
    dirs::make(&home, 0o700)?;
    chown(&home, Some(user.uid), Some(user.gid))?;
    dirs::make(&images_dir(dirs), 0o755)?;
    add_user(&root(dirs), &user)?;
    let spec = Spec {
        network: Isolation::Machine,
        processes: Isolation::Machine,
        script: include_str!("apptainer.sh"),
        args: vec![
            root(dirs).into(),
            home.into(),
            user.home.clone().into(),
            dirs.state("shared").into(),
            images_dir(dirs).into(),
            cgroup(dirs).into(),
        ],
    };
    let cell = Cell::new(dirs, NAME);
    if cell.init()?.is_none() {
        // Instances outlive a killed cell but are no longer reachable.
        down(dirs)?;
    }
    let answers = || {
        let inside = cell.init()?.context("no cell")?;
        for dir in [images_dir(dirs), dirs.state("shared")] {
            still_mounted(&dir, &inside)?;
        }
        write_launcher(dirs, &user, &inside)?;
        version(dirs).map(drop)
    };
    cell.ensure(&spec, answers)?;
    let current = images::ALL.map(|image| [image.build(), format!("{}.sif", image.build())]).concat();
    let builder = Builder::new(dirs, &cell)?;
    dirs::keep_only(&images_dir(dirs), &current)?;
    for image in images::ALL {
        convert(dirs, &builder, image)?;
    }
    Ok(())
}

/// Ends every instance, then the cell.
pub(crate) fn down(dirs: &Dirs) -> Result<()> {
    cell::script(include_str!("apptainer-down.sh"), &[OsStr::new(&cgroup(dirs))])?;
    Cell::new(dirs, NAME).stop()
}

/// Asks Apptainer for its version.
pub(crate) fn probe(dirs: &Dirs) -> Result<Access> {
    let version = version(dirs)?;
    let launch = launcher(dirs).to_str().context("the state directory's name is not text")?.to_owned();
    let images = images::ALL.into_iter().map(|image| describe(dirs, image)).collect::<Vec<_>>();
    if let Some(image) = images.iter().find(|image| !image.sandbox.exists() || !image.sif.exists()) {
        bail!("no {} image", image.name);
    }
    Ok(Access::Apptainer { launch: vec![launch], version, images })
}

/// Checks that a directory is the one that was mounted into the cell, and was not deleted and
/// created again since.
fn still_mounted(dir: &Path, inside: &Process) -> Result<()> {
    let mounted = PathBuf::from(format!("/proc/{}/root{}", inside.pid, dir.display()));
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    if identity(dir)? != identity(&mounted)? {
        bail!("{} was replaced", dir.display());
    }
    Ok(())
}

fn version(dirs: &Dirs) -> Result<String> {
    let text = run::output(run::command(launcher(dirs)).arg("version"), Duration::from_secs(20))?;
    Ok(text.trim().to_owned())
}

fn root(dirs: &Dirs) -> PathBuf {
    dirs.state("apptainer").join(format!("root-{}", dirs::fingerprint(ROOT_OPTIONS)))
}

fn launcher(dirs: &Dirs) -> PathBuf {
    dirs.state("apptainer/launch")
}

fn images_dir(dirs: &Dirs) -> PathBuf {
    dirs.state("apptainer/images")
}

fn cgroup(dirs: &Dirs) -> String {
    format!("{}-apptainer", dirs.id())
}

fn describe(dirs: &Dirs, image: Image) -> ApptainerImage {
    let dir = images_dir(dirs);
    ApptainerImage {
        name: image.name().to_owned(),
        sandbox: dir.join(image.build()),
        sif: dir.join(format!("{}.sif", image.build())),
    }
}

/// Adds the user to the root, with the id ranges of the machine.
fn add_user(root: &Path, user: &User) -> Result<()> {
    let User { name, uid, gid, home } = user;
    let home = home.display();
    set_entry(&root.join("etc/passwd"), name, &format!("x:{uid}:{gid}::{home}:/bin/bash"))?;
    set_entry(&root.join("etc/group"), name, &format!("x:{gid}:"))?;
    for file in ["subuid", "subgid"] {
        let range = user::range(&format!("/etc/{file}"))?.context("the user has no range of ids")?;
        set_entry(&root.join("etc").join(file), name, &format!("{}:{}", range.first, range.count))?;
    }
    Ok(())
}

fn set_entry(path: &Path, name: &str, rest: &str) -> Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    let mut lines: Vec<&str> = old.lines().filter(|line| line.split(':').next() != Some(name)).collect();
    let entry = format!("{name}:{rest}");
    lines.push(&entry);
    dirs::write(path, &format!("{}\n", lines.join("\n")), 0o644)
}

fn write_launcher(dirs: &Dirs, user: &User, inside: &Process) -> Result<()> {
    let text = include_str!("apptainer-launch.sh")
        .replace("@PID@", &inside.pid.to_string())
        .replace("@START@", &inside.start.to_string())
        .replace("@CGROUP@", &cgroup(dirs))
        .replace("@USER@", &user.name)
        .replace("@HOME@", &user.home.display().to_string());
    dirs::write(&launcher(dirs), &text, 0o755)
}

/// Converts an image to the two forms that Apptainer runs. The archive is unpacked outside of the
/// root, where it is visible, and the forms are built inside.
fn convert(dirs: &Dirs, builder: &Builder, image: Image) -> Result<()> {
    let ApptainerImage { sandbox, sif, .. } = describe(dirs, image);
    if sandbox.exists() && sif.exists() {
        return Ok(());
    }
    eprintln!("peers: apptainer: converting the {} image", image.name());
    let partial = images_dir(dirs).join("partial");
    let (plain, fresh_sandbox, fresh_sif) =
        (partial.join("plain"), partial.join("sandbox"), partial.join("sif"));
    for path in [&sandbox, &sif] {
        dirs::remove(path)?;
    }
    dirs::make(&plain, 0o755)?;
    let log = dirs.log(&format!("apptainer-{}", image.name()));
    let run = |mut command: Command| {
        run::logged(&mut command, Duration::from_secs(300), &log)
            .with_context(|| format!("converting the {} image", image.name()))
    };
    let mut unpack = builder.outside("tar");
    // The engine creates device nodes.
    unpack.args(["--extract", "--exclude", "./dev/*", "--file"]).arg(image.tarball(dirs));
    unpack.arg("--directory").arg(&plain);
    run(unpack)?;
    let mut build = builder.inside("apptainer");
    build.args(["build", "--force", "--sandbox"]).arg(&fresh_sandbox).arg(&plain);
    run(build)?;
    let mut build = builder.inside("apptainer");
    // The default compression takes five times as long.
    build.args(["build", "--force", "--mksquashfs-args", "-comp zstd -Xcompression-level 1"]);
    build.arg(&fresh_sif).arg(&plain);
    run(build)?;
    fs::rename(&fresh_sandbox, &sandbox)?;
    fs::rename(&fresh_sif, &sif)?;
    dirs::remove(&partial)
}

/// Runs build steps in a separate cgroup, which identifies them and kills all of them.
struct Builder {
    inside: String,
    procs: PathBuf,
}

impl Builder {
    /// Also ends the steps of a killed run, which would go on writing where the new ones want to.
    fn new(dirs: &Dirs, cell: &Cell<'_>) -> Result<Self> {
        let inside = cell.init()?.context("no cell")?.pid.to_string();
        let group = PathBuf::from(format!("/proc/{inside}/root/run/cgroup/{}/build", cgroup(dirs)));
        let procs = group.join("cgroup.procs");
        fs::write(group.join("cgroup.kill"), "1").context("ending an earlier build")?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !fs::read(&procs)?.is_empty() {
            if Instant::now() > deadline {
                bail!("an earlier build does not end");
            }
            thread::sleep(run::POLL_INTERVAL);
        }
        Ok(Self { inside, procs })
    }

    fn outside(&self, program: &str) -> Command {
        let mut command = run::command("sh");
        command.args(["-euc", "echo $$ > \"$1\"; shift; exec \"$@\"", "build"]).arg(&self.procs).arg(program);
        command
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = self.outside("nsenter");
        command.args(["--target", &self.inside, "--mount", "--root", "--wd", "--", program]);
        command
    }
}
