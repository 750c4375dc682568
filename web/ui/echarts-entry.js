// The part of Apache ECharts that the dashboard draws with. Built by make into vendor/echarts.min.js.
import { use, init } from "echarts/core";
import {
    BarChart,
    CustomChart,
    HeatmapChart,
    LineChart,
    ParallelChart,
    ScatterChart,
} from "echarts/charts";
import {
    AriaComponent,
    DataZoomComponent,
    GridComponent,
    LegendComponent,
    MarkLineComponent,
    ParallelComponent,
    TooltipComponent,
    VisualMapComponent,
} from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([
    AriaComponent,
    BarChart,
    CanvasRenderer,
    CustomChart,
    DataZoomComponent,
    GridComponent,
    HeatmapChart,
    LegendComponent,
    LineChart,
    MarkLineComponent,
    ParallelChart,
    ParallelComponent,
    ScatterChart,
    TooltipComponent,
    VisualMapComponent,
]);

export { init };
