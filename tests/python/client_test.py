"""partune.Client against a real daemon with simulated campaigns."""
import importlib.util
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from xml.dom import minidom

import partune
from partune import types

SRC, BUILD = os.environ["PT_SRC"], os.environ["PT_BUILD"]
SPEC = {
    "name": "a <b> & c",
    "model": "nano-llama",
    "cluster": {"profile": "dgx-a100", "nodes": 1},
    "workload": {"global_batch": 8},
    "launcher": {"kind": "simulated", "speed": 1000000},
    "budget": {"trials": 6},
}
SLOW = {**SPEC, "launcher": {"kind": "simulated", "speed": 1}, "budget": {"trials": 25},
        "trial": {"warmup_steps": 0, "min_steps": 20, "max_steps": 20}}


class Daemon:
    def __init__(self, folder):
        self.folder, self.address = folder, "127.0.0.1:0"
        self.start()

    def start(self):
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [BUILD + "/partuned", "--data", self.folder + "/data", "--listen", self.address],
                stderr=file,
            )
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            with open(log, encoding="utf-8") as file:
                words = file.read().partition("ready at ")[2].split()
            if words:
                self.url = words[0]
                self.address = self.url.split("//")[1].rstrip("/")
                return
            time.sleep(0.05)
        with open(log, encoding="utf-8") as file:
            raise RuntimeError("the daemon does not start: " + file.read())

    def client(self, **more):
        return partune.Client(**{"server": self.url, "data": self.folder + "/data", **more})

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class WithDaemon(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir=BUILD)
        cls.daemon = Daemon(cls.folder.name)
        cls.client = cls.daemon.client()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.folder.cleanup()


class Results(WithDaemon):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = os.path.join(cls.folder.name, "campaign.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("// a comment\n" + json.dumps(SPEC))
        cls.campaign = cls.client.submit(path)
        cls.end = cls.campaign.wait(120)

    def test_a_campaign_file_with_comments_is_run_to_its_end(self):
        self.assertEqual((self.end["state"], self.end["name"]), ("done", SPEC["name"]))

    def test_results_are_one_row_a_trial(self):
        rows = self.campaign.results()
        self.assertEqual([row["n"] for row in rows], list(range(1, len(rows) + 1)))
        self.assertEqual(len(rows), self.end["progress"]["trials"])
        best = max((r for r in rows if r["tokens_per_s"]), key=lambda row: row["tokens_per_s"])
        trial = self.campaign.trial(best["n"])
        self.assertEqual({key: best[key] for key in trial["layout"]}, trial["layout"])
        self.assertEqual(best["tokens_per_s"], trial["tokens_per_s"])
        self.assertTrue(best["simulated"])

    def test_the_best_is_one_of_the_trials(self):
        best = self.campaign.best()
        self.assertEqual(self.campaign.trial(best["trial"])["text"], best["text"])
        self.assertGreater(best["tokens_per_s"], 0)

    def test_a_trial_is_explained_against_another(self):
        why = self.campaign.why(2)
        self.assertEqual((why["trial"], why["against"], why["simulated"]), (2, 1, True))
        change = why["predicted"]["to_s"] - why["predicted"]["from_s"]
        self.assertAlmostEqual(sum(key["change_s"] for key in why["keys"]), change)
        self.assertEqual(self.campaign.why(1, against=2)["against"], 2)

    def test_lists_are_read_page_by_page(self):
        path = f"/v1/campaigns/{self.campaign.id}/trials"
        rows = list(self.client._http.items(path, page_size=2, sort="n"))
        self.assertEqual(rows, self.campaign.trials(sort="n"))
        self.assertGreater(len(rows), 2)

    def test_filters_reach_the_daemon(self):
        self.assertEqual([t["n"] for t in self.campaign.trials(kind="baseline")], [1])
        self.assertEqual(self.client.campaigns(state="failed"), [])

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_a_frame_has_the_same_rows(self):
        frame = self.campaign.frame()
        self.assertEqual(len(frame), len(self.campaign.results()))
        self.assertEqual(frame.index.name, "n")

    def test_an_export_is_text_and_a_file(self):
        path = os.path.join(self.folder.name, "out.json")
        text = self.campaign.export("partune", allow_simulated=True, allow_loss=True, output=path)
        world = self.campaign.best()["layout"]["world"]
        self.assertEqual(json.loads(text)["layout"]["world"], world)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_an_export_that_is_refused_says_why(self):
        with self.assertRaisesRegex(partune.Problem, "simulated"):
            self.campaign.export("partune")

    def test_a_finished_campaign_is_followed_from_its_first_event_to_its_last(self):
        events = list(self.campaign.follow(patience=10))
        ids = [event.id for event in events]
        self.assertEqual(ids, sorted(set(ids)))
        self.assertEqual({e.kind for e in events} - {"campaign", "trial", "step", "best"}, set())
        self.assertEqual(events[-1].kind, "campaign")
        self.assertEqual(events[-1].data["state"], "done")
        self.assertEqual(list(self.campaign.follow(since=None)), [])

    def test_the_newest_campaign_is_last(self):
        self.assertEqual(self.client.campaign().id, self.campaign.id)

    def test_a_notebook_shows_a_chart_without_markup_of_the_name(self):
        html = self.campaign._repr_html_()
        page = minidom.parseString(html.replace("<br>", "<br/>"))
        rates = [t for t in self.campaign.trials() if t["tokens_per_s"]]
        self.assertEqual(len(page.getElementsByTagName("circle")), len(rates))
        self.assertEqual(page.getElementsByTagName("b")[0].firstChild.data, SPEC["name"])
        self.assertIn("simulated tokens/s", html)

    def test_plan_ranks_layouts(self):
        keys = ("model", "cluster", "workload")
        plan = self.client.plan({key: SPEC[key] for key in keys}, top=3, trainer="megatron")
        rates = [item["tokens_per_s"] for item in plan["items"]]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertEqual(len(rates), 3)

    def test_size_compares_numbers_of_devices(self):
        sizing = self.client.size({key: SPEC[key] for key in ("model", "cluster", "workload")}, tokens=1e9)
        days = [item["days"] for item in sizing["items"] if item["days"]]
        self.assertEqual(days, sorted(days, reverse=True))
        self.assertGreater(len(days), 0)

    def test_check_names_broken_rules(self):
        keys = ("model", "cluster", "workload")
        found = self.client.check({**{k: SPEC[k] for k in keys}, "layout": {"tp": 3}})
        self.assertFalse(found["legal"])
        self.assertIn("world-dense", [rule["rule"] for rule in found["rules"]])

    def test_a_dry_run_starts_nothing(self):
        before = len(self.client.campaigns())
        self.assertGreater(self.client.dry_run(SPEC)["legal"], 0)
        self.assertEqual(len(self.client.campaigns()), before)


class Problems(WithDaemon):
    def refused(self, function, *given):
        with self.assertRaises(partune.Problem) as caught:
            function(*given)
        return caught.exception

    def test_a_wrong_value_has_its_pointer(self):
        found = self.refused(self.client.submit, {**SPEC, "budget": {"trials": -1}})
        self.assertEqual((found.status, found.pointer), (422, "/budget/trials"))
        self.assertIn("/budget/trials", str(found))

    def test_broken_rules_are_listed(self):
        found = self.refused(self.client.submit, {**SPEC, "baseline": {"tp": 3, "world": 8}})
        self.assertEqual(found.status, 422)
        self.assertTrue(all(rule["rule"] for rule in found.rules))
        self.assertGreater(len(found.rules), 0)

    def test_what_is_not_there_is_404(self):
        self.assertEqual(self.refused(self.client.campaign, "nowhere1").status, 404)

    def test_no_campaign_is_last_where_there_is_none(self):
        with self.assertRaisesRegex(LookupError, "no campaign"):
            self.client.campaign()

    def test_a_wrong_token_is_401(self):
        found = self.refused(self.daemon.client(token="wrong").campaigns)
        self.assertEqual(found.status, 401)

    def test_following_what_is_not_there_is_an_error_at_once(self):
        follow = partune.Campaign(self.client._http, "nowhere1").follow()
        self.assertEqual(self.refused(next, follow).status, 404)

    def test_without_a_daemon_following_ends_after_its_patience(self):
        nobody = partune.Client(server="http://127.0.0.1:9", token="x")
        with self.assertRaises(OSError):
            next(nobody.follow(patience=0))

    def test_other_transports_are_refused(self):
        with self.assertRaisesRegex(ValueError, "unix:/x"):
            partune.Client(server="unix:/x")


class Restart(WithDaemon):
    def test_events_are_followed_over_a_killed_daemon_without_gap_or_repetition(self):
        campaign = self.client.submit(SLOW)
        seen, killed = [], False
        for event in campaign.follow(patience=60):
            seen.append(event.id)
            if len(seen) == 8 and not killed:
                self.assertEqual(campaign.state, "running")
                self.daemon.kill()
                self.daemon.start()
                killed = True
        self.assertTrue(killed)
        self.assertEqual(campaign.state, "done")
        self.assertEqual(seen, [event.id for event in campaign.follow()])


class Types(WithDaemon):
    def test_the_types_are_those_of_the_daemon_s_document(self):
        path = SRC + "/python/generate_types.py"
        spec = importlib.util.spec_from_file_location("generate_types", path)
        generate = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(generate)
        text = generate.module(self.client._http.json("GET", "/openapi.json"))
        with open(SRC + "/python/partune/types.py", encoding="utf-8") as file:
            self.assertEqual(file.read(), text, "run python/generate_types.py")

    def test_answers_have_the_keys_of_their_types(self):
        campaign = self.client.submit(SPEC)
        campaign.wait(120)
        for answer, kind in ((campaign.show(), types.Campaign), (campaign.trial(1), types.Trial)):
            self.assertEqual(set(answer) - set(kind.__annotations__), set())
            self.assertEqual(kind.__required_keys__ - set(answer), set())
