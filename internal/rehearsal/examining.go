package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/examine/stackdoctor"
)

// operatorScenario inspects the registry and the stack like operators do. The
// stack must be healthy, and the audit trail must name the operators' roles.
func operatorScenario(ctx context.Context, r *Registry) error {
	// A rehearsal removes the keys of published providers. verify reports that.
	_, err := r.Larder(ctx, "verify", "--quick", "--json")
	if err != nil && !strings.Contains(err.Error(), `"findings"`) {
		return err
	}
	if err := r.examine(ctx); err != nil {
		return err
	}
	return r.auditRoles(ctx)
}

// examine returns an error unless `larder doctor --stack` finds a healthy
// stack. In AWS nobody subscribes to the alarms of a rehearsal.
func (r *Registry) examine(ctx context.Context) error {
	text, err := r.Examine(ctx)
	if err != nil {
		return err
	}
	report, err := readReport(text)
	if err != nil {
		return err
	}
	for _, s := range report.Steps {
		unsubscribed := r.CI == nil && s.Name == "alarm subscribers" && s.Outcome == doctor.Warning
		if s.Outcome != doctor.OK && s.Outcome != doctor.Skipped && !unsubscribed {
			return fmt.Errorf("larder doctor --stack reports %s: %s: %s", s.Outcome, s.Name, s.Result)
		}
	}
	return nil
}

// readReport parses the output of `larder doctor --stack --json`.
func readReport(text string) (stackdoctor.Report, error) {
	var report stackdoctor.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return report, fmt.Errorf("cannot parse the output of larder doctor: %w:\n%s", err, text)
	}
	if len(report.Steps) == 0 {
		return report, errors.New("larder doctor has inspected nothing")
	}
	return report, nil
}

// auditRoles checks that the rehearsal's changes were made by one of the
// operators' roles.
func (r *Registry) auditRoles(ctx context.Context) error {
	text, err := r.Larder(ctx, "audit", "--since", "1h", "--json")
	if err != nil {
		return err
	}
	var trail struct {
		Entries []struct{ By, Action, Subject, Detail string }
	}
	if err := json.Unmarshal([]byte(text), &trail); err != nil {
		return fmt.Errorf("cannot parse the audit trail: %w:\n%s", err, text)
	}
	changes := 0
	for _, e := range trail.Entries {
		if !strings.Contains(e.Subject+e.Detail, r.Namespace) || !strings.HasPrefix(e.By, "arn:") {
			continue // from another rehearsal, or through the registry's own endpoint
		}
		if e.Subject == "modules/"+r.Older {
			continue
		}
		changes++
		if !strings.Contains(e.By, ":assumed-role/"+operatorRole+"/") &&
			!strings.Contains(e.By, ":assumed-role/"+withdrawRole+"/") {
			return fmt.Errorf(
				"%s of %s by %s, not by a role with only the operators' policies",
				e.Action,
				e.Subject,
				e.By,
			)
		}
	}
	if changes == 0 {
		return fmt.Errorf("the audit trail has no change with AWS credentials:\n%s", text)
	}
	return nil
}
