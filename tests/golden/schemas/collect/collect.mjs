// Writes one JSON Schema file for each package of kinds into a folder: `make pin-schemas`.
//
// The shape (fields, what is required) comes from a package's TypeScript types; what types cannot say (integers, enums,
// patterns, limits) from its compiled validators, whose errors carry the place in the schema. Unknown fields are wrong.

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createGenerator } from "ts-json-schema-generator";

const HERE = dirname(new URL(import.meta.url).pathname);
const OUT = process.argv[2];

const PACKAGES = {
  "argo-rollouts": {
    from: "@kubernetes-models/argo-rollouts",
    kinds: {
      "argoproj.io/v1alpha1": ["AnalysisRun", "AnalysisTemplate", "ClusterAnalysisTemplate", "Experiment", "Rollout"],
    },
  },
  "argo-workflows": {
    from: "@kubernetes-models/argo-workflows",
    kinds: { "argoproj.io/v1alpha1": ["Workflow", "WorkflowTemplate"] },
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
  karpenter: { from: "@kubernetes-models/karpenter", kinds: { "karpenter.sh/v1": ["NodePool"] } },
  kubernetes: {
    from: "kubernetes-models",
    kinds: {
      v1: [
        "ConfigMap", "Event", "LimitRange", "Namespace", "Node", "PersistentVolumeClaim", "Pod",
        "PodTemplate", "ResourceQuota", "Secret", "Service", "ServiceAccount",
      ],
      "admissionregistration.k8s.io/v1": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
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

/** What neither says: markers on the Go types of gateway-api's apis/v1 that the packages' makers leave out. */
const BESIDES = {
  "gateway-api": {
    IPathMatchType: { enum: ["Exact", "PathPrefix", "RegularExpression"] },
    IHeaderMatchType: { enum: ["Exact", "RegularExpression"] },
    IQueryParamMatchType: { enum: ["Exact", "RegularExpression"] },
    IHTTPMethod: { enum: ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"] },
    IHTTPBackendRef: { weight: { type: "integer", minimum: 0, maximum: 1000000 } },
  },
};

/** Kinds with a type of the same name as one of Kubernetes' own, which a schema cannot hold both of: by their spec. */
const APART = ["NodePool"];

/** Types that share their name with another that the same kind refers to, by package: the file, the name, a new name. */
const RENAMED = { "@kubernetes-models/argo-workflows": ["argoproj.io/v1alpha1/HTTPHeader.d.ts", "IHTTPHeader", "IWorkflowHTTPHeader"] };

const root = (name) => join(HERE, "node_modules", name);

/** The schema of one kind, with everything it refers to under `definitions`. */
function shape(from, apiVersion, kind) {
  if (APART.includes(kind)) return around(kind, apiVersion, part(from, apiVersion, `${kind}Spec`));
  return part(from, apiVersion, kind);
}

/** A kind whose `spec` has this schema; nothing is said of its metadata. */
function around(kind, apiVersion, { definitions }) {
  const properties = {
    apiVersion: { const: apiVersion }, kind: { const: kind }, metadata: { type: "object" }, status: { type: "object" },
    spec: { $ref: `#/definitions/I${kind}Spec` },
  };
  const whole = { type: "object", properties, required: ["apiVersion", "kind", "spec"], additionalProperties: false };
  return { definitions: { ...definitions, [`I${kind}`]: whole } };
}

function part(from, apiVersion, kind) {
  const generator = createGenerator({
    path: join(root(from), apiVersion, `${kind}.d.ts`),
    tsconfig: join(HERE, "tsconfig.json"),
    type: `I${kind}`,
    jsDoc: "none",
    skipTypeCheck: true,
  });
  return generator.createSchema(`I${kind}`);
}

/** What a compiled validator would complain about: `[place in the schema, keyword, value]`, outside of alternatives. */
function* limits(text) {
  const names = new Map([...text.matchAll(/(schema\d+_enum)=(\[[^\]]*\])/g)].map((found) => [found[1], found[2]]));
  const error = /schemaPath:"#\/([^"]*)",keyword:"(\w+)",params:\{(?:\w+:"[<>]=?",)?\w+:("(?:[^"\\]|\\.)*"|[^},]+)\}/g;
  for (const [start, body] of functions(text)) {
    for (const [, path, keyword, raw] of body.matchAll(error)) {
      const place = [...start, ...path.split("/").slice(0, -1).map((part) => part.replaceAll("~1", "/"))];
      if (place.some((part) => ["anyOf", "oneOf", "allOf", "not"].includes(part))) continue;
      if (!["type", "enum", "minimum", "maximum", "pattern"].includes(keyword) && !/^(min|max)/.test(keyword)) continue;
      const written = names.get(raw) ?? raw;
      if (!/_enum$/.test(written)) yield [place, keyword, new Function(`return ${written}`)()];
    }
  }
}

/** The functions of a compiled validator, each with every place that it looks at: found by who calls it on what. */
function functions(text) {
  const parts = text.split(/function (?=validate\d+\(data,)/).slice(1);
  const bodies = new Map(parts.map((body) => [body.match(/^validate\d+/)[0], body]));
  const found = [];
  const visit = (name, place) => {
    if (!bodies.has(name) || place.length > 24) return;
    found.push([place, bodies.get(name)]);
    for (const [, callee, where] of bodies.get(name).matchAll(/(validate\d+)\([^{]*\{instancePath(?::(instancePath[^,]*))?,/g)) {
      visit(callee, [...place, ...within(where ?? "")]);
    }
  };
  visit(text.match(/export const validate=(validate\d+)/)?.[1], []);
  return found;
}

/** `instancePath+"/steps/"+i0` as a place in the schema: properties, steps, items. */
function within(expression) {
  const parts = expression.match(/"[^"]*"|\bi\d+|\bkey\d+/g) ?? [];
  return parts.flatMap((part) => {
    if (part.startsWith("i")) return ["items"];
    if (part.startsWith("key")) return ["additionalProperties"];
    return part.slice(1, -1).split("/").filter(Boolean).flatMap((name) => ["properties", name.replaceAll("~1", "/")]);
  });
}

/** Write the limits of a package's validators into the definitions of the same name. */
function narrow(definitions, packages) {
  for (const [name, definition] of Object.entries(definitions)) {
    const found = packages.map((one) => validators(one, name.replace(/^I/, ""))).find((files) => files.length) ?? [];
    for (const file of found) {
      for (const [place, keyword, value] of limits(readFileSync(file, "utf8"))) {
        const target = place.reduce((node, key) => node?.[key], definition);
        if (!target) continue;
        // The validator of a namesake in another group: Event of events.k8s.io.
        if (keyword === "enum" && target.const !== undefined && !value.includes(target.const)) continue;
        if (keyword === "type") {
          if (value === "integer" && target.type === "number") target.type = "integer";
        } else target[keyword] = value;
      }
    }
  }
}

/** A type without fields is an object of any: a plugin's configuration, say. */
function opened(node) {
  if (!node || typeof node !== "object") return node;
  if (Array.isArray(node)) return node.map(opened);
  const { additionalProperties, ...rest } = node;
  const open = node.type === "object" && additionalProperties === false && !node.properties;
  return Object.fromEntries(Object.entries(open ? rest : node).map(([key, value]) => [key, opened(value)]));
}

/** The validators of a type: its stable version's, or else every version's; their names end with the type's. */
function validators(from, name) {
  const folder = join(root(from), "_schemas");
  if (!existsSync(folder)) return [];
  const fits = new RegExp(`(V\\d+((alpha|beta)\\d+)?|Resource|Intstr|Runtime)${name}\\.js$`);
  const found = readdirSync(folder).filter((file) => fits.test(file));
  const stable = found.filter((file) => !/V\d+(alpha|beta)\d/.test(file));
  return (stable.length ? stable : found).map((file) => join(folder, file));
}

for (const [from, [file, name, other]] of Object.entries(RENAMED)) {
  const path = join(root(from), file);
  writeFileSync(path, readFileSync(path, "utf8").replaceAll(new RegExp(`\\b${name}\\b`, "g"), other));
}

for (const [file, { from, kinds }] of Object.entries(PACKAGES)) {
  const definitions = {};
  const roots = {};
  for (const [apiVersion, names] of Object.entries(kinds)) {
    for (const kind of names) {
      for (const [name, one] of Object.entries(shape(from, apiVersion === "v1" ? "v1" : apiVersion, kind).definitions)) {
        if (definitions[name] && JSON.stringify(definitions[name]) !== JSON.stringify(opened(one))) {
          throw new Error(`${from}: two types are called ${name}`);
        }
        definitions[name] = opened(one);
      }
      roots[`${apiVersion} ${kind}`] = `I${kind}`;
    }
  }
  narrow(definitions, [...new Set(["@kubernetes-models/apimachinery", from, "kubernetes-models"])]);
  for (const [name, { enum: values, ...fields }] of Object.entries(BESIDES[file] ?? {})) {
    if (values) definitions[name].enum = values;
    for (const [field, limits] of Object.entries(fields)) Object.assign(definitions[name].properties[field], limits);
  }
  // Argo Workflows calls a template's container `main` itself.
  if (definitions.ITemplate) definitions.IContainer.required = definitions.IContainer.required.filter((name) => name !== "name");
  if (definitions.IIntOrString) definitions.IIntOrString.type = ["string", "integer"]; // no fractions, whatever TypeScript says
  const version = JSON.parse(readFileSync(join(root(from), "package.json"))).version;
  const lines = Object.keys(definitions).sort().map((name) => `  ${JSON.stringify(name)}: ${JSON.stringify(definitions[name])}`);
  const head = `{\n"source": "${from} ${version}",\n"kinds": ${JSON.stringify(roots, null, 1)},\n"definitions": {\n`;
  writeFileSync(join(OUT, `${file}.json`), `${head}${lines.join(",\n")}\n}\n}\n`);
  console.log(`${file}: ${Object.keys(roots).length} kinds, ${lines.length} types`);
}
