"""A SLURM of two nodes on this machine: its own munge, one controller, two `slurmd`, in a folder of its own. It needs root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.machines import free_port
from support.runs import eventually

PROGRAMS = "slurmctld", "slurmd", "munged", "sbatch", "unshare"
NODES = "n1", "n2"
CONFIG = """
ClusterName=partrain
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=20
SlurmdTimeout=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=bf_interval=1,sched_interval=1,requeue_delay=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores} RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores} RealMemory=4000
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=600 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=n1,n2 MaxTime=600 State=UP PriorityTier=2 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Slurm:
    """The cluster."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        """Run one of SLURM's commands, and return what it prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def submit(self, script: str, folder: Path, *options: str) -> str:
        """Submit a script, which runs in a folder, and return the number of its job. Its output goes to out.txt there."""
        (folder / "job.sh").write_text(script)
        return self.run(
            "sbatch", "--parsable", f"--chdir={folder}", f"--output={folder}/out.txt", *options, str(folder / "job.sh")
        )

    def field(self, job: str, name: str) -> str:
        """Return a field of a job, as `scontrol show job` has it."""
        words = self.run("scontrol", "show", "job", "--oneliner", job).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def wait(self, job: str, *states: str, seconds: float = 120) -> None:
        """Wait until a job is in one of the states."""
        eventually(lambda: self.field(job, "JobState") in states, f"job {job} to become {' or '.join(states)}", seconds)

    def hasten(self, job: str) -> None:
        """Start a job that waits in the queue again, for which SLURM would let two minutes pass."""
        self.wait(job, "PENDING")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def start_node(self, name: str) -> None:
        """Start a node, whose hosts file has the names of all."""
        mount = f"mount --bind {self.folder}/hosts /etc/hosts && exec slurmd -N {name}"
        subprocess.run(["unshare", "-m", "sh", "-c", mount], env=self.environment, check=True)
        eventually(lambda: name in self.run("sinfo", "--noheader", "--states=idle", "--Node", "--format=%N"), f"node {name}")

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon and all that it runs."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"SLURMD_NODENAME={name}".encode() in words:
                os.kill(int(process.name), 9)
        os.kill(int((self.folder / f"{name}.pid").read_text()), 9)


@contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """Start a cluster, and stop it at the end. Skips the test that asks for it where that is impossible."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing or os.geteuid():
        pytest.skip(f"a SLURM of its own needs root, and of Debian slurm-wlm and munge; missing: {', '.join(missing) or 'root'}")
    for name in ("munge", "state", *NODES):
        (folder / name).mkdir(mode=0o700)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o400)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(NODES)} {socket.gethostname()}\n")
    config = CONFIG.format(
        folder=folder, host=socket.gethostname(), ports=[free_port() for _ in range(3)], cores=len(os.sched_getaffinity(0))
    )
    (folder / "slurm.conf").write_text(config)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "GLOO_SOCKET_IFNAME": "lo"}
    started = Slurm(folder, environment)
    munge = [
        f"--{key}-file={folder}/munge/{name}" for key, name in (("key", "key"), ("pid", "pid"), ("log", "log"), ("seed", "seed"))
    ]
    try:
        subprocess.run(["munged", "--force", f"--socket={folder}/munge/socket", *munge], check=True)
        subprocess.run(["slurmctld", "-c"], env=environment, check=True)
        eventually(
            lambda: "UP" in subprocess.run(["scontrol", "ping"], env=environment, capture_output=True, text=True).stdout,
            "the controller",
        )
        for name in NODES:
            started.start_node(name)
        yield started
    finally:
        for pid in (*(folder / f"{name}.pid" for name in NODES), folder / "slurmctld.pid", folder / "munge" / "pid"):
            if pid.exists():
                _terminate(int(pid.read_text()))
        time.sleep(0.5)


def _terminate(process: int) -> None:
    """Stop a daemon; it may be gone."""
    try:
        os.kill(process, 15)
    except ProcessLookupError:
        return
