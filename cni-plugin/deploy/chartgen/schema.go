package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// valuesText is the schema of the chart's values. It does not include a chain's specification.
//
//go:embed values.schema.json
var valuesText string

const chainPlace = `"⟦the properties of a NetcraqChain⟧"`

// kept are the keywords that the values' schema takes over from a resource's schema. It does not
// take over "required", because the API server fills in required fields that have a default.
var kept = []string{"type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
	"minProperties", "maxProperties", "pattern"}

// valuesSchema returns the schema of the chart's values. It includes the fields of the chains'
// resource, because the API server would silently drop unknown fields.
func valuesSchema(crd map[string]any) (string, error) {
	spec, _ := dig(crd, "spec")
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return "", errors.New("chains have several versions: which one do the chart's values have?")
	}
	version, _ := versions[0].(map[string]any)
	of, ok := dig(version, "schema", "openAPIV3Schema", "properties", "spec")
	if !ok || strings.Count(valuesText, chainPlace) != 1 {
		return "", errors.New("the specification of chains, or its place in the values' schema, is not there")
	}
	closed, err := onlyKnown(of)
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(closed, "        ", "  ")
	return strings.Replace(valuesText, chainPlace, string(text), 1), err
}

// onlyKnown returns a JSON schema for the fields of an object. The schema permits no other fields.
func onlyKnown(of map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for key, value := range of {
		if slices.Contains(kept, key) {
			out[key] = value
			continue
		}
		inner, isSchema := value.(map[string]any)
		switch {
		case key == "items" && isSchema, key == "additionalProperties" && isSchema:
			made, err := onlyKnown(inner)
			if err != nil {
				return nil, err
			}
			out[key] = made
		case key == "properties":
			fields := map[string]any{}
			for name, field := range inner {
				made, err := onlyKnown(field.(map[string]any))
				if err != nil {
					return nil, err
				}
				fields[name] = made
			}
			out[key], out["additionalProperties"] = fields, false
		case key == "description", key == "default", key == "format", key == "required", strings.HasPrefix(key, "x-kubernetes-"):
		default:
			return nil, fmt.Errorf("the schema of a chain has %s, of which nobody knows what it is in one of values", key)
		}
	}
	return out, nil
}
