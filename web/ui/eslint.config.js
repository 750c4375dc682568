// Rules for the dashboard (.js) and its tests (.mjs), on top of those that ESLint recommends. tests/ui/lint.t applies
// them.

const BROWSER = [
    "AbortController",
    "Blob",
    "Event",
    "IntersectionObserver",
    "Node",
    "ResizeObserver",
    "TextDecoder",
    "TextDecoderStream",
    "URL",
    "URLSearchParams",
    "atob",
    "clearInterval",
    "clearTimeout",
    "console",
    "crypto",
    "devicePixelRatio",
    "document",
    "fetch",
    "getComputedStyle",
    "getSelection",
    "history",
    "location",
    "matchMedia",
    "navigator",
    "performance",
    "requestAnimationFrame",
    "scrollTo",
    "setInterval",
    "setTimeout",
    "window",
];
// Tests run in node and, inside of page.evaluate(), in the browser.
const TESTS = [
    ...BROWSER,
    "Buffer",
    "CanvasRenderingContext2D",
    "DOMException",
    "MouseEvent",
    "MutationObserver",
    "PerformanceObserver",
    "innerWidth",
    "localStorage",
    "process",
    "scrollY",
    "sessionStorage",
];
const readonly = (names) => Object.fromEntries(names.map((name) => [name, "readonly"]));

const ONE_LETTER = new Set(["i", "j", "k", "n", "x", "y", "_"]);

/** A parameter has a name of one letter only for an index, a coordinate or an axis, or in a function of two lines. */
const roleNames = {
    meta: { type: "suggestion", schema: [] },
    create(context) {
        const check = (node) => {
            if (node.loc.end.line - node.loc.start.line < 2) return;
            for (const { name, defs } of context.sourceCode.getDeclaredVariables(node))
                if (name.length === 1 && !ONE_LETTER.has(name) && defs[0]?.type === "Parameter")
                    context.report({
                        node: defs[0].name,
                        message: `Parameter '${name}' is not named by its role.`,
                    });
        };
        return {
            FunctionDeclaration: check,
            FunctionExpression: check,
            ArrowFunctionExpression: check,
        };
    },
};

const EVERYWHERE = {
    "array-callback-return": "error",
    "consistent-return": "error",
    "default-case-last": "error",
    eqeqeq: "error",
    "no-duplicate-imports": "error",
    "no-else-return": "error",
    "no-eval": "error",
    "no-implicit-coercion": "error",
    "no-implied-eval": "error",
    "no-nested-ternary": "error",
    "no-new-func": "error",
    "no-param-reassign": "error",
    "no-promise-executor-return": "error",
    "no-return-assign": "error",
    "no-self-compare": "error",
    "no-sequences": "error",
    "no-shadow": "error",
    "no-template-curly-in-string": "error",
    "no-throw-literal": "error",
    "no-undef": "error",
    "no-unused-expressions": "error",
    "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
    "no-use-before-define": ["error", { functions: false, variables: false }],
    "no-useless-concat": "error",
    "no-var": "error",
    "object-shorthand": "error",
    "prefer-const": "error",
    "prefer-template": "error",
};

export default [
    {
        files: ["**/*.js", "**/*.mjs"],
        languageOptions: { ecmaVersion: 2022, sourceType: "module" },
        linterOptions: { reportUnusedDisableDirectives: "error" },
        rules: EVERYWHERE,
    },
    {
        files: ["**/*.js"],
        languageOptions: { globals: readonly(BROWSER) },
        plugins: { partune: { rules: { "role-names": roleNames } } },
        rules: {
            complexity: ["error", 15],
            "max-depth": ["error", 4],
            "max-lines": ["error", 700],
            "max-lines-per-function": ["error", 80],
            "max-params": ["error", 5],
            "partune/role-names": "error",
        },
    },
    { files: ["**/*.mjs"], languageOptions: { globals: readonly(TESTS) } },
];
