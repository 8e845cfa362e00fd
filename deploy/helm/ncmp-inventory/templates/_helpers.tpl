{{- define "ncmp-inventory.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ncmp-inventory.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ncmp-inventory.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "ncmp-inventory.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: worker
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ncmp-inventory.serviceAccountName" -}}
{{- default (ternary (include "ncmp-inventory.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Secret files: a list of {key, secret, item, path}; key is the worker's. */ -}}
{{- define "ncmp-inventory.secretFiles" -}}
{{- with .Values.secrets.database }}
- {key: database.url-file, secret: {{ .name | quote }}, item: {{ .urlKey | quote }}, path: database-url}
{{- if .passwordKey }}
- {key: database.password-file, secret: {{ .name | quote }}, item: {{ .passwordKey | quote }}, path: database-password}
{{- end }}
{{- end }}
{{- with .Values.secrets.kafka }}
{{- if and .name .passwordKey }}
- {key: kafka.sasl.password-file, secret: {{ .name | quote }}, item: {{ .passwordKey | quote }}, path: kafka-password}
{{- end }}
{{- if and .name .clientSecretKey }}
- {key: kafka.sasl.oauth.client-secret-file, secret: {{ .name | quote }}, item: {{ .clientSecretKey | quote }}, path: kafka-client-secret}
{{- end }}
{{- end }}
{{- with .Values.secrets.kafkaTLS }}
{{- if and .name .caKey }}
- {key: kafka.tls.ca-file, secret: {{ .name | quote }}, item: {{ .caKey | quote }}, path: kafka-ca.crt}
{{- end }}
{{- if and .name .certKey }}
- {key: kafka.tls.cert-file, secret: {{ .name | quote }}, item: {{ .certKey | quote }}, path: kafka-tls.crt}
{{- end }}
{{- if and .name .keyKey }}
- {key: kafka.tls.key-file, secret: {{ .name | quote }}, item: {{ .keyKey | quote }}, path: kafka-tls.key}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The worker's file: what the user gave, and what the chart decides. */ -}}
{{- define "ncmp-inventory.config" -}}
{{- $own := dict "drain-timeout" (printf "%ds" (int .Values.drainTimeoutSeconds)) "http" (dict "address" (printf ":%d" (int .Values.port))) -}}
{{- range include "ncmp-inventory.secretFiles" . | fromYamlArray -}}
{{- $_ := set $own .key (printf "/etc/ncmp-inventory/secrets/%s" .path) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}
