// The dashboard and its tests by ESLint, with the rules of web/ui/eslint.config.js.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { finish, test } from "./tap.mjs";

const packages = path.join(process.env.PT_BUILD, "web", "ui", "npm", "node_modules");
const { ESLint } = createRequire(path.join(packages, "/"))("eslint");
const recommended = createRequire(path.join(packages, "eslint", "/"))("@eslint/js").configs
    .recommended;

const eslint = new ESLint({
    cwd: process.env.PT_SRC,
    overrideConfigFile: path.join(process.env.PT_SRC, "web", "ui", "eslint.config.js"),
    baseConfig: recommended,
});

const said = ({ filePath, messages }) =>
    messages.map(
        ({ line, ruleId, message }) =>
            `${path.relative(process.env.PT_SRC, filePath)}:${line}: ${ruleId}: ${message}`,
    );

async function rulesBroken(text) {
    const [result] = await eslint.lintText(text, { filePath: "web/ui/pages/example.js" });
    return new Set(result.messages.map(({ ruleId }) => ruleId));
}

for (const files of [
    "web/ui/*.js",
    "web/ui/charts/*.js",
    "web/ui/lib/*.js",
    "web/ui/pages/*.js",
    "web/ui/parts/*.js",
    "tests/ui/*.mjs",
])
    test(`${files} break no rule`, async () => {
        const results = await eslint.lintFiles([files]);
        assert.ok(results.length > 0);
        assert.deepEqual(results.flatMap(said), []);
    });

test("a broken rule is found", async () => {
    const long = `export function long() {\n${"    window.name += 1;\n".repeat(80)}}\n`;
    assert.deepEqual(await rulesBroken(long), new Set(["max-lines-per-function"]));
    const letter = "export function twice(a) {\n    const b = a;\n    return b + b;\n}\n";
    assert.deepEqual(await rulesBroken(letter), new Set(["partune/role-names"]));
    assert.deepEqual(
        await rulesBroken("let left = 1;\nexport const same = left == unknown;\n"),
        new Set(["prefer-const", "eqeqeq", "no-undef"]),
    );
    assert.deepEqual(await rulesBroken("const idle = 1;\n"), new Set(["no-unused-vars"]));
});

/** Functions of more than two lines, as tests/structure/js-functions.py finds them. */
function functionsFound(files) {
    const checker = path.join(process.env.PT_SRC, "tests", "structure", "js-functions.py");
    const lines = execFileSync("python3", [checker, "2", ...files], { encoding: "utf8" });
    return lines.trim().split("\n");
}

test("the structure test, which needs no npm, finds the same functions", async () => {
    const counting = new ESLint({
        cwd: process.env.PT_SRC,
        overrideConfigFile: true,
        overrideConfig: { rules: { "max-lines-per-function": ["error", 2] } },
    });
    const all = await counting.lintFiles(["web/ui/*/*.js", "web/ui/*.js"]);
    // A release archive has the chart library there, whose lines are long.
    const results = all.filter(({ filePath }) => !filePath.includes("/web/ui/vendor/"));
    const counted = results.flatMap(({ filePath, messages }) =>
        messages.map(
            ({ line, message }) => `${filePath}:${line}: ${message.match(/\((\d+)\)/)[1]} lines`,
        ),
    );
    assert.ok(counted.length > 500);
    const found = functionsFound(results.map(({ filePath }) => filePath));
    assert.deepEqual(found.sort(), counted.sort());
});

process.exitCode = (await finish()) ? 1 : 0;
