// A dashboard as Grafana's own types have it, with the options of the panels that we use in place of "anything".
// How the schemas next to it are made of it: README.md.

import * as raw from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';
import * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import * as gauge from '@grafana/schema/dist/esm/raw/composable/gauge/panelcfg/x/GaugePanelCfg_types.gen';
import * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import * as lines from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import * as timeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';

// `Partial` where Grafana fills in a default for what is not said.
type Fields<Custom> = Omit<raw.FieldConfigSource, 'defaults'> & {
  defaults: Omit<raw.FieldConfig, 'custom'> & { custom?: Partial<Custom> };
};
type Of<Type extends string, Options, Custom> = Omit<raw.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type;
  options: Partial<Options>;
  fieldConfig: Fields<Custom>;
  targets: Query[];
};

interface Query {
  datasource: raw.DataSourceRef;
  expr: string;
  format?: 'time_series' | 'table' | 'heatmap';
  instant?: boolean;
  legendFormat?: string;
  range?: boolean;
  refId: string;
}

type AnyPanel =
  | raw.RowPanel
  | Of<'bargauge', bargauge.Options, {}>
  | Of<'gauge', gauge.Options, {}>
  | Of<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | Of<'stat', stat.Options, {}>
  | Of<'state-timeline', timeline.Options, timeline.FieldConfig>
  | Of<'timeseries', lines.Options, lines.FieldConfig>;

type Variable = Partial<raw.VariableModel> & Pick<raw.VariableModel, 'name' | 'type'>;
type Annotation = Omit<raw.AnnotationQuery, 'target'> & { target?: Query };
type Rest = Omit<raw.Dashboard, 'panels' | 'annotations' | 'refresh' | 'templating' | 'schemaVersion'>;

export type Dashboard = Partial<Rest> &
  Pick<raw.Dashboard, 'schemaVersion'> & {
    annotations?: { list?: Annotation[] };
    panels: AnyPanel[];
    refresh?: string;
    templating?: { list?: Variable[] };
  };
