"""unittest as TAP: tap.py FILE... runs every test of the files; a test's name is a sentence."""
import importlib.util
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["PT_SRC"], "python"))
sys.dont_write_bytecode = True


class Tap(unittest.TestResult):
    def say(self, word, test, more=""):
        name = test.id().split(".", 1)[1].replace(".test_", ": ").replace("_", " ")
        print(f"{word} {self.testsRun} - {name}{more}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("ok", test, f" # SKIP {reason}")

    def bad(self, test, error):
        self.say("not ok", test)
        text = self._exc_info_to_string(error, test)
        print("".join(f"#   {line}\n" for line in text.splitlines()[-30:]), end="", flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.bad(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.bad(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.bad(subtest, error)


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


suite = unittest.TestSuite(load(path) for path in sys.argv[1:])
print(f"1..{suite.countTestCases()}", flush=True)
result = Tap()
suite.run(result)
for test, text in result.errors:
    if not hasattr(test, "_testMethodName"):  # of a class's set-up: no test says so
        print("Bail out! " + text.splitlines()[-1])
sys.exit(not result.wasSuccessful())
