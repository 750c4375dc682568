// TAP for tests that node runs: test("a sentence", async () => { … }), then await finish().

const tests = [];

export function test(name, fn) {
    tests.push([name, fn]);
}

/** Run what was declared, in order; each failure is told with its stack. onFail(name) may keep evidence. */
export async function finish({ onFail } = {}) {
    console.log(`1..${tests.length}`);
    let failed = 0;
    for (const [i, [name, fn]] of tests.entries()) {
        const start = Date.now();
        try {
            await fn();
            console.log(`ok ${i + 1} - ${name}`);
            if (Date.now() - start > 1000)
                console.log(`#   ${((Date.now() - start) / 1000).toFixed(1)} s`);
        } catch (error) {
            failed += 1;
            console.log(`not ok ${i + 1} - ${name}`);
            for (const line of String(error.stack ?? error)
                .split("\n")
                .slice(0, 12))
                console.log(`#   ${line}`);
            await onFail?.(name)?.catch?.(() => {});
        }
    }
    return failed;
}
