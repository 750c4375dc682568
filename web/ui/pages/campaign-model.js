// How well the cost model knew what was going to happen, and the price of throughput in memory.

import { fill, h } from "../lib/dom.js";
import { chartPanel } from "../charts/panel.js";
import { fitCalibration, memoryModel, pareto, speedModel } from "../charts/model.js";
import { go } from "../lib/router.js";
import { spoken } from "../lib/words.js";

export const modelTab = {
    key: "model",
    title: "Model and memory",
    open(page, body) {
        const { ctx, id, store } = page;
        const visit = ({ n }) => n && go(["campaigns", id, "trials", String(n)]);
        const make = (spec) =>
            chartPanel(ctx, {
                ...spec,
                name: `${spec.name}-${id}`,
                className: "w6",
                onClick: visit,
            });
        const charts = [speedModel, memoryModel, pareto, fitCalibration].map((spec) => [
            spec,
            make(spec),
        ]);
        const verdict = h("p", { class: "sub", role: "status" });
        const update = () => {
            const data = { trials: store.all() };
            charts.forEach(([, chart]) => chart.set(data));
            verdict.textContent = spoken(
                `Throughput: ${speedModel.summary(data) || "nothing to compare yet."}`,
                ctx.simulated,
            );
        };
        fill(
            body,
            verdict,
            h(
                "div",
                { class: "grid" },
                charts.map(([, chart]) => chart.element),
            ),
        );
        store.onChange(update);
        update();
    },
};
