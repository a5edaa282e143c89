package main

import (
	"errors"
	"fmt"
	"strings"
)

// This file says which value of the chart goes into which place of the DaemonSets. If a place is
// not found, that is an error: the manifests have changed, and this file must follow.

// blocks has whole lines of templates, by the name of the block. If the operator sets no value,
// they render to the same text as in the manifest.
var blocks = map[string]string{
	"etcd": "- --etcd={{ join \",\" .Values.etcd.endpoints }}\n",
	"gateway": `{{- with .Values.gateway }}
- --gateway={{ . }}
{{- end }}
`,
	"prometheus": `{{- with .Values.prometheus }}
- --prometheus={{ . }}
{{- end }}
`,
	// further options for every agent
	"options": `{{- if .Values.cni.chained }}
- --chained
{{- end }}
{{- if ne .Values.cni.version "1.0.0" }}
- --cni-version={{ .Values.cni.version }}
{{- end }}
{{- if ne .Values.routes "auto" }}
- --routes={{ .Values.routes }}
{{- end }}
{{- with .Values.services }}
- --services={{ . }}
{{- end }}
{{- with .Values.switches }}
- --switches={{ . }}
{{- end }}
{{- if ne (int .Values.ports.p4runtime) 9559 }}
- --p4runtime-port={{ .Values.ports.p4runtime }}
{{- end }}
{{- if ne (int .Values.ports.agent) 9560 }}
- --agent-port={{ .Values.ports.agent }}
{{- end }}
{{- if ne (int .Values.ports.health) 9561 }}
- --health-port={{ .Values.ports.health }}
{{- end }}
{{- with .Values.nodeAPI.streamsMiB }}
- --node-api-streams={{ . }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
`,
	// further options for agents that may lead
	"leaderOptions": `{{- if ne (int .Values.podRate) 20000 }}
- --pod-rate={{ .Values.podRate }}
{{- end }}
{{- with .Values.adminUsers }}
- --admin-users={{ join "," . }}
{{- end }}
{{- range .Values.controlPlane.extraArgs }}
- {{ . | quote }}
{{- end }}
`,
	"policiesOptions": `{{- if .Values.policies.failOpen }}
- --fail-open
{{- end }}
`,
	"pullSecrets": `{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 6 }}
{{- end }}
`,
}

// hostPaths has the chart's values for the host paths of volumes.
var hostPaths = map[string]string{
	"cni-bin": ".Values.cni.binDir", "cni-conf": ".Values.cni.confDir",
	"etcd-ca": ".Values.etcd.ca", "client-crt": ".Values.etcd.cert", "client-key": ".Values.etcd.key",
}

// image returns the directive for the image of a container. values is the name of the values for
// the image.
func image(values string) string {
	return `⟦=include "netcraq.image" (dict "of" ` + values + `.image "version" .Chart.AppVersion)⟧`
}

// common marks the parts that all DaemonSets have in common. It returns the pod template, and the
// container with this name. A DaemonSet without such a container belongs to another component, so
// common does not change it.
func common(object map[string]any, name, values string) (pod, of map[string]any, err error) {
	pod, ok := dig(object, "spec", "template", "spec")
	if !ok {
		return nil, nil, errors.New("it has no template of pods")
	}
	containers, _ := pod["containers"].([]any)
	for _, c := range containers {
		if c, _ := c.(map[string]any); c["name"] == name {
			of = c
		}
	}
	if of == nil {
		return nil, nil, nil
	}
	of["image"], of["imagePullPolicy"] = image(values), "⟦=.Values.image.pullPolicy⟧"
	pod["priorityClassName"] = "⟦=.Values.priorityClassName⟧"
	pod["⟦pullSecrets⟧"] = ""
	if _, ok := of["resources"]; !ok {
		return nil, nil, fmt.Errorf("the container %s has no resources", name)
	}
	of["resources"] = "⟦=toJson " + values + ".resources⟧"
	return pod, of, nil
}

// enforcer marks the places of values in the DaemonSet that enforces NetworkPolicy.
func enforcer(object map[string]any) error {
	_, of, err := common(object, "policies", ".Values.policies")
	if err != nil || of == nil {
		return err
	}
	args, _ := of["args"].([]any)
	if len(args) == 0 {
		return errors.New("netcraq-policies has no arguments")
	}
	of["args"] = append(args, "⟦policiesOptions⟧")
	return nil
}

// agent marks the places of values in a DaemonSet of agents.
func agent(object map[string]any) error {
	pod, of, err := common(object, "agent", ".Values")
	if err != nil || of == nil {
		return err
	}
	if err := arguments(of); err != nil {
		return err
	}
	if _, ok := pod["nodeSelector"]; ok {
		pod["nodeSelector"] = "⟦=toJson .Values.controlPlane.nodeSelector⟧"
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		get, ok := dig(of, probe, "httpGet")
		if !ok || fmt.Sprint(get["port"]) != "9561" {
			return fmt.Errorf("the agent's %s does not ask the port 9561", probe)
		}
		get["port"] = "⟦=.Values.ports.health⟧"
	}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		v, _ := v.(map[string]any)
		name, _ := v["name"].(string)
		if value, ok := hostPaths[name]; ok {
			host, ok := dig(v, "hostPath")
			if !ok {
				return fmt.Errorf("the volume %s is no path of the host's", name)
			}
			host["path"] = "⟦=" + value + "⟧"
		}
	}
	return nil
}

// arguments marks the arguments that have values. It also adds places for further arguments.
func arguments(container map[string]any) error {
	args, _ := container["args"].([]any)
	if len(args) == 0 {
		return errors.New("the agent has no arguments")
	}
	leads := false
	for i, a := range args {
		name, _, _ := strings.Cut(fmt.Sprint(a), "=")
		switch name {
		case "--etcd", "--gateway", "--prometheus":
			args[i] = "⟦" + strings.TrimPrefix(name, "--") + "⟧"
			leads = true
		}
	}
	args = append(args, "⟦options⟧")
	if leads {
		args = append(args, "⟦leaderOptions⟧")
	}
	container["args"] = args
	return nil
}

// dig returns the value at a path of keys.
func dig(in map[string]any, keys ...string) (map[string]any, bool) {
	for _, k := range keys {
		next, ok := in[k].(map[string]any)
		if !ok {
			return nil, false
		}
		in = next
	}
	return in, true
}
