package main

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// kubernetesObject has what a StatefulSet, a Service and an Ingress refer to.
type kubernetesObject struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ServiceName string `yaml:"serviceName"`
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct{ Containers []kubernetesContainer }
		}
		Selector any // of a StatefulSet and of a Service
		Ports    []struct {
			Port       int
			TargetPort int `yaml:"targetPort"`
		}
		TLS   []struct{ Hosts []string }
		Rules []kubernetesRule
	}
}

type kubernetesContainer struct {
	Args           []string
	Ports          []map[string]int
	ReadinessProbe kubernetesProbe `yaml:"readinessProbe"`
	LivenessProbe  kubernetesProbe `yaml:"livenessProbe"`
}

type kubernetesProbe struct {
	HTTPGet struct {
		Path string
		Port int
	} `yaml:"httpGet"`
}

type kubernetesRule struct {
	Host string
	HTTP struct {
		Paths []struct {
			Path    string
			Backend struct {
				Service struct {
					Name string
					Port map[string]int
				}
			}
		}
	}
}

// readKubernetes returns the objects of the example in docs/reverse-proxy.md.
func readKubernetes(t *testing.T) map[string]kubernetesObject {
	t.Helper()
	page := readText(t, "../../docs/reverse-proxy.md")
	block := regexp.MustCompile("(?ms)^```yaml\n(apiVersion:.*?)^```$").FindStringSubmatch(page)
	if block == nil {
		t.Fatal("the page has no example")
	}
	objects := make(map[string]kubernetesObject)
	for documents := yaml.NewDecoder(strings.NewReader(block[1])); ; {
		var one kubernetesObject
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		objects[one.Kind] = one
	}
	for _, kind := range []string{"StatefulSet", "Service", "Ingress"} {
		if _, found := objects[kind]; !found {
			t.Fatalf("the example has no %s", kind)
		}
	}
	return objects
}

// The objects of the example for Kubernetes fit together. Its command serves the
// host of the Ingress, and answers its probes.
func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	objects := readKubernetes(t)
	set, service, ingress := objects["StatefulSet"].Spec, objects["Service"], objects["Ingress"].Spec
	container := set.Template.Spec.Containers[0]
	equal := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	labels := map[string]any{}
	for name, value := range set.Template.Metadata.Labels {
		labels[name] = value
	}
	equal("the selector of the StatefulSet", any(map[string]any{"matchLabels": labels}), set.Selector)
	equal("the selector of the Service", any(labels), service.Spec.Selector)
	equal("the Service of the StatefulSet", service.Metadata.Name, set.ServiceName)
	rule, port := ingress.Rules[0], service.Spec.Ports[0]
	equal("the hosts of the certificate", []string{rule.Host}, ingress.TLS[0].Hosts)
	backend := rule.HTTP.Paths[0].Backend.Service
	equal("the Service of the Ingress", service.Metadata.Name, backend.Name)
	equal("its port", map[string]int{"number": port.Port}, backend.Port)
	equal("the path of the Ingress", "/", rule.HTTP.Paths[0].Path)
	equal("the port of the container", []map[string]int{{"containerPort": port.TargetPort}}, container.Ports)

	equal("the command", "serve", container.Args[0])
	var args []string
	for _, arg := range container.Args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		if name == "--listen-plain" {
			equal("the plain listener", ":"+strconv.Itoa(port.TargetPort), value)
			value = "127.0.0.1:0"
		}
		args = append(args, name, value)
	}
	if !slices.Contains(args, "--trusted-proxies") {
		t.Error("the example names no proxies, so the server would not listen on all addresses")
	}
	s := serve(t, t.TempDir(), args...)
	equal("the URL", "https://"+rule.Host, s.URL)
	for _, probe := range []kubernetesProbe{container.ReadinessProbe, container.LivenessProbe} {
		equal("the port of a probe", port.TargetPort, probe.HTTPGet.Port)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+s.Address+probe.HTTPGet.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "10.244.1.5:8080" // the address of a pod
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		equal("the status for "+probe.HTTPGet.Path, http.StatusOK, response.StatusCode)
	}
}
