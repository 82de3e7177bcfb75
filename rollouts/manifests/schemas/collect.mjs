// Writes one JSON Schema file for each package of kinds, beside this file: `npm install && node collect.mjs`.
//
// The shape (fields, what is required) comes from a package's TypeScript types; what types cannot say (integers, enums,
// patterns, limits) from its compiled validators, whose errors carry the place in the schema. Unknown fields are wrong.

import { createRequire } from "node:module";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createGenerator } from "ts-json-schema-generator";

const HERE = dirname(new URL(import.meta.url).pathname);
const require = createRequire(import.meta.url);

const PACKAGES = {
  "argo-rollouts": {
    from: "@kubernetes-models/argo-rollouts",
    kinds: {
      "argoproj.io/v1alpha1": ["AnalysisRun", "AnalysisTemplate", "ClusterAnalysisTemplate", "Experiment", "Rollout"],
    },
  },
  "gateway-api": {
    from: "@kubernetes-models/gateway-api",
    kinds: { "gateway.networking.k8s.io/v1": ["Gateway", "GatewayClass", "HTTPRoute"] },
  },
  istio: {
    from: "@kubernetes-models/istio",
    kinds: { "networking.istio.io/v1": ["DestinationRule", "VirtualService"] },
  },
  keda: {
    from: "@kubernetes-models/keda",
    kinds: { "keda.sh/v1alpha1": ["ScaledObject", "TriggerAuthentication"] },
  },
  "prometheus-operator": {
    from: "@kubernetes-models/prometheus-operator",
    kinds: { "monitoring.coreos.com/v1": ["PodMonitor", "PrometheusRule", "ServiceMonitor"] },
  },
  kubernetes: {
    from: "kubernetes-models",
    kinds: {
      v1: [
        "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolumeClaim", "Pod",
        "PodTemplate", "ResourceQuota", "Secret", "Service", "ServiceAccount",
      ],
      "apps/v1": ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
      "autoscaling/v2": ["HorizontalPodAutoscaler"],
      "batch/v1": ["Job"],
      "coordination.k8s.io/v1": ["Lease"],
      "discovery.k8s.io/v1": ["EndpointSlice"],
      "networking.k8s.io/v1": ["NetworkPolicy"],
      "policy/v1": ["PodDisruptionBudget"],
      "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
      "scheduling.k8s.io/v1": ["PriorityClass"],
      "storage.k8s.io/v1": ["StorageClass"],
    },
  },
};

const root = (name) => join(HERE, "node_modules", name);

/** The schema of one kind, with everything it refers to under `definitions`. */
function shape(from, apiVersion, kind) {
  const generator = createGenerator({
    path: join(root(from), apiVersion, `${kind}.d.ts`),
    tsconfig: join(HERE, "tsconfig.json"),
    type: `I${kind}`,
    jsDoc: "none",
    skipTypeCheck: true,
  });
  return generator.createSchema(`I${kind}`);
}

/** What a compiled validator would complain about: `[place, keyword, value]`, outside of alternatives. */
function* limits(text) {
  const names = new Map([...text.matchAll(/(schema\d+_enum)=(\[[^\]]*\])/g)].map((found) => [found[1], found[2]]));
  const error = /schemaPath:"(#[^"]*)",keyword:"(\w+)",params:\{(?:\w+:"[<>]=?",)?\w+:("(?:[^"\\]|\\.)*"|[^},]+)\}/g;
  for (const [, place, keyword, raw] of text.matchAll(error)) {
    if (/\/(anyOf|oneOf|allOf|not)\//.test(place)) continue;
    if (!["type", "enum", "minimum", "maximum", "pattern"].includes(keyword) && !/^(min|max)/.test(keyword)) continue;
    const written = names.get(raw) ?? raw;
    if (/_enum$/.test(written)) continue;
    yield [place.split("/").slice(1, -1), keyword, new Function(`return ${written}`)()];
  }
}

/** Write the limits of a package's validators into the definitions of the same name. */
function narrow(definitions, packages) {
  for (const [name, definition] of Object.entries(definitions)) {
    for (const file of packages.flatMap((one) => validators(one, name.replace(/^I/, "")))) {
      for (const [place, keyword, value] of limits(readFileSync(file, "utf8"))) {
        const target = place.reduce((node, key) => node?.[key.replaceAll("~1", "/")], definition);
        if (!target || target.$ref) continue;
        if (keyword === "type") {
          if (value === "integer" && target.type === "number") target.type = "integer";
        } else target[keyword] = value;
      }
    }
  }
}

/** The validators of a type: one for each API version that has it; only the last part of their names is the type's. */
function validators(from, name) {
  const folder = join(root(from), "_schemas");
  if (!existsSync(folder)) return [];
  const fits = new RegExp(`(V\\d+((alpha|beta)\\d+)?|Resource|Intstr|Runtime)${name}\\.js$`);
  return readdirSync(folder).filter((file) => fits.test(file)).map((file) => join(folder, file));
}

for (const [file, { from, kinds }] of Object.entries(PACKAGES)) {
  const definitions = {};
  const roots = {};
  for (const [apiVersion, names] of Object.entries(kinds)) {
    for (const kind of names) {
      for (const [name, one] of Object.entries(shape(from, apiVersion === "v1" ? "v1" : apiVersion, kind).definitions)) {
        if (definitions[name] && JSON.stringify(definitions[name]) !== JSON.stringify(one)) {
          throw new Error(`${from}: two types are called ${name}`);
        }
        definitions[name] = one;
      }
      roots[`${apiVersion} ${kind}`] = `I${kind}`;
    }
  }
  narrow(definitions, [...new Set([from, "kubernetes-models", "@kubernetes-models/apimachinery"])]);
  const version = JSON.parse(readFileSync(join(root(from), "package.json"))).version;
  const lines = Object.keys(definitions).sort().map((name) => `  ${JSON.stringify(name)}: ${JSON.stringify(definitions[name])}`);
  const head = `{\n"source": "${from} ${version}",\n"kinds": ${JSON.stringify(roots, null, 1)},\n"definitions": {\n`;
  writeFileSync(join(HERE, `${file}.json`), `${head}${lines.join(",\n")}\n}\n}\n`);
  console.log(`${file}: ${Object.keys(roots).length} kinds, ${lines.length} types`);
}
