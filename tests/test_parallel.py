"""Jobs in processes: what is killed is replaced, what is left ends, what was found is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from driftls import parallel
from driftls.errors import DriftlsError, SettingsError, StorageError
from driftls.parallel import Cached, claim_folder, key_of, parallel_map


def squared(number):
    return number * number


def die_once(job):
    path, number = job
    if number in (1, 3) and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number):
    raise ZeroDivisionError(f"job {number}")


def threads(_):
    from threadpoolctl import threadpool_info

    return max(pool["num_threads"] for pool in threadpool_info())


def process(_):
    return os.getpid()


def test_a_killed_worker_is_replaced_and_its_job_done_again(tmp_path):
    jobs = [(tmp_path / str(number), number) for number in range(5)]
    assert sorted(parallel_map(die_once, jobs, workers=2)) == [(number, number) for number in range(5)]


def test_a_worker_killed_from_outside_is_replaced_without_a_word(capfd):
    found = {}
    for number, worker in parallel_map(process, range(40), workers=2):
        found[number] = worker
        if len(found) == 3:
            os.kill(worker, signal.SIGKILL)
            assert gone(worker)
    assert sorted(found) == list(range(40))
    assert len(set(found.values())) > 1  # others did the rest, or, on a busy machine, one
    assert capfd.readouterr() == ("", "")


def die_if_first(number):
    return number if number else die(number)


def test_a_job_that_kills_its_workers_is_given_up_in_a_sentence_after_all_others():
    found = []
    with pytest.raises(DriftlsError, match=r"job 0 was given up: 3 workers were killed while they did it"):
        found.extend(parallel_map(die_if_first, range(9), workers=2))
    assert sorted(found) == [(number, number) for number in range(1, 9)]


def test_an_error_of_a_job_is_its_own():
    for workers in (1, 2):
        with pytest.raises(ZeroDivisionError, match="job 7"):
            list(parallel_map(fail, [7, 7], workers=workers))


def test_what_cannot_be_sent_is_told():
    with pytest.raises(SettingsError, match=r"cannot be sent to another process .*Pass workers=1"):
        list(parallel_map(abs, [threading.Lock()], workers=2))


@pytest.mark.parametrize("workers", [0, -2, 1.5, True, "two"])
def test_what_is_no_number_of_workers_is_refused(workers):
    with pytest.raises(SettingsError, match="workers must be a number of processes"):
        list(parallel_map(abs, [1], workers=workers))


def test_a_call_has_one_thread_wherever_it_runs():
    for workers in (1, 2):
        assert [count for _, count in parallel_map(threads, [0, 1], workers=workers)] == [1, 1]


def test_workers_stay_for_the_next_map():
    first, second = ({found for _, found in parallel_map(process, range(8), workers=2)} for _ in range(2))
    assert len(first | second) <= 2
    assert os.getpid() not in first


def test_nothing_goes_on_when_the_results_are_no_longer_taken(capfd):
    for _ in range(5):
        with closing(parallel_map(process, range(1000), workers=2)) as results:
            _, worker = next(results)
        assert gone(worker)
    assert "Traceback" not in capfd.readouterr().err  # of loky's thread, for what it had not handed out


def gone(worker, seconds=300.0):
    """Whether a process has ended, or does so soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


LONG = """
import os, time
from driftls.parallel import parallel_map
def work(_):
    os.write(1, b"%d\\n" % os.getpid())  # at once: both do so together
    time.sleep(600)
list(parallel_map(work, [0, 1], workers=2))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_the_process_that_started_it(how):
    parent = subprocess.Popen(
        [sys.executable, "-c", LONG],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(how)
        _, told = parent.communicate(timeout=600)
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == -how
    assert told.count("Traceback") == (how is signal.SIGINT)  # that of the parent alone
    assert all(gone(worker) for worker in workers)


def test_what_is_kept_is_not_done_again_and_what_is_broken_is(tmp_path):
    cached = Cached(tmp_path / "new" / "runs")
    jobs = {key_of("square", number): number for number in range(4)}
    assert list(cached.map(squared, jobs, workers=1).values()) == [0, 1, 4, 9]
    lost, broken, *_ = jobs
    cached.path(lost).unlink()
    cached.path(broken).write_text("{")
    done, told = [], []
    again = cached.map(lambda job: done.append(job) or job, jobs, workers=1, progress=lambda *at: told.append(at))
    assert done == [0, 1]
    assert list(again.values()) == [0, 1, 4, 9]
    assert told == [(2, 4), (3, 4), (4, 4)]


def test_a_result_is_what_will_be_read_again(tmp_path):
    found = Cached(tmp_path).map(lambda x: {"x": (1.0, x)}, {"a": float("nan")}, workers=1)
    assert found == {"a": {"x": [1.0, None]}}
    assert found["a"] == json.loads((tmp_path / "a.json").read_text())


def test_a_key_depends_on_parts_and_version(monkeypatch):
    keys = {key_of("a", 1), key_of("a", 2), key_of("b", 1)}
    monkeypatch.setattr(parallel, "__version__", "0.0.0")
    assert len(keys | {key_of("a", 1)}) == 4


def test_a_folder_belongs_to_its_settings(tmp_path):
    settings = {"bandits": [{"name": "a", "dim": 3}], "seeds": [1, 2]}
    claim_folder(tmp_path / "out", settings)
    claim_folder(tmp_path / "out", {"seeds": 7})  # nothing was found yet
    claim_folder(tmp_path / "out", settings)
    (tmp_path / "out" / "result").touch()
    other = {"bandits": [{"name": "a", "dim": 4}], "seeds": [1, 2, 3], "search": None}
    with pytest.raises(SettingsError, match=r"\(bandits\.0\.dim was 3, is 4; seeds\.2 was not set, is 3\)"):
        claim_folder(tmp_path / "out", other)
    claim_folder(tmp_path / "out", settings)
    claim_folder(tmp_path / "out", other, extend=True)
    claim_folder(tmp_path / "out", other)
    (tmp_path / "out" / ".settings").write_text("{")
    with pytest.raises(DriftlsError, match="not JSON"):
        claim_folder(tmp_path / "out", other)
    (tmp_path / "out" / ".settings").unlink()
    with pytest.raises(SettingsError, match="expected a new folder or one of ours, got one with files"):
        claim_folder(tmp_path / "out", other)
    with pytest.raises(StorageError, match="out/result: File exists"):
        claim_folder(tmp_path / "out" / "result", other)
