{{- /* The image of what has one among the values: by digest where that is given. */ -}}
{{- define "netcraq.image" -}}
{{- if .of.digest -}}
{{ .of.repository }}@{{ .of.digest }}
{{- else -}}
{{ .of.repository }}:{{ .of.tag | default .version }}
{{- end -}}
{{- end -}}
