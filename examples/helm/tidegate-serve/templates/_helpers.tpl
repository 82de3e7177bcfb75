{{- define "tidegate-serve.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tidegate-serve.metadata" -}}
name: {{ include "tidegate-serve.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  app: {{ include "tidegate-serve.name" . }}
  app.kubernetes.io/name: tidegate-serve
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
