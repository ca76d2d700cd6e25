package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// cfn-lint finds nothing in the templates of various settings.
func TestLint(t *testing.T) {
	lint, err := exec.LookPath("cfn-lint")
	if err != nil {
		t.Skip("LEFT OUT: cfn-lint is not on PATH")
	}
	all := everything()
	for key, value := range map[string]any{
		"alarms": true, "alarmEmail": "registry@example.com", "dashboard": true, "publishConcurrency": 10,
		"pullConcurrency": 10, "architecture": "x86_64",
	} {
		all[key] = value
	}
	domain := everything()
	for _, key := range []string{"cognito", "access", "tableName", "bucketName"} {
		delete(domain, key)
	}
	const topic = "arn:aws:sns:eu-central-1:111122223333:pager"
	var templates []string
	for name, given := range map[string]map[string]any{
		"nothing": {},
		"all":     all,
		"domain":  domain,
		"company": company(),
		"readonly": {"readOnly": true, "tableName": "restored-table", "bucketName": "restored-bucket", "kmsKeyArn": key,
			"alarms": true, "dashboard": true},
		"pool": {"cognito": everything()["cognito"], "accessLog": false, "metrics": true},
		"alarms": {"alarms": true, "alarmTopicArn": topic, "dashboard": true, "anonymousRead": true,
			"logRetentionDays": 3653},
		"large": {"architecture": "x86_64", "throttleRate": 10_000, "throttleBurst": 5_000, "inspections": 1000,
			"copies": 1000, "publishMaxInspections": 100, "dashboard": true, "accessLog": false},
	} {
		app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
		newStack(app, parsed(t, given), stubs(t))
		template := filepath.Join(t.TempDir(), name+".template.json")
		if err := os.Rename(filepath.Join(*app.Synth(nil).Directory(), "Larder.template.json"),
			template); err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	args := append([]string{"--regions", "eu-central-1", "--"}, templates...)
	if out, err := exec.CommandContext(t.Context(), lint, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
