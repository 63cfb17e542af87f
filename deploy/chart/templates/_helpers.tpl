{{- define "crkafka.name" -}}
{{- printf "%s-%s" .Chart.Name .Values.region.region | replace "_" "-" | replace "." "-" | lower | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- define "crkafka.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "crkafka.labels" -}}
{{ include "crkafka.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
{{- define "crkafka.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/crkafka, readOnly: true}
  - {name: secrets, mountPath: /secrets, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: home, mountPath: /var/lib/crkafka}
{{- end -}}
