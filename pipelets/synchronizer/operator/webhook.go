package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

// signedBy returns a function that configures a server. The server then admits only clients whose
// certificate was signed by a CA in the file.
func signedBy(file string) (func(*tls.Config), error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--webhook-client-ca: %s has no certificate in PEM", file)
	}
	return func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authorities }, nil
}

const (
	// certificateLeft is the remaining lifetime at which the certificate is renewed. A new
	// certificate is valid for a year.
	certificateLeft = 60 * 24 * time.Hour
	certificateLook = time.Minute
	// compiling is the maximum number of flows that are compiled at the same time. It is small
	// because a flow may compute for seconds.
	compiling = 2
)

// validator refuses invalid Pipelets before the API server stores them.
type validator struct {
	rules *rules
	turn  chan struct{}
}

func setupWebhook(mgr ctrl.Manager, rules *rules) error {
	v := &validator{rules: rules, turn: make(chan struct{}, compiling)}
	return ctrl.NewWebhookManagedBy(mgr).For(&pipeletapi.Pipelet{}).WithValidator(v).Complete()
}

// ValidateCreate implements admission.CustomValidator.
func (v *validator) ValidateCreate(ctx context.Context, obj runtime.Object) (admission.Warnings, error) {
	p, ok := obj.(*pipeletapi.Pipelet)
	if !ok {
		return nil, fmt.Errorf("it is no Pipelet but %T", obj)
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("too many Pipelets are being checked; try again: %w", ctx.Err())
	}
	return nil, v.rules.check(ctx, p)
}

// ValidateUpdate implements admission.CustomValidator.
func (v *validator) ValidateUpdate(ctx context.Context, _, obj runtime.Object) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, obj)
}

// ValidateDelete implements admission.CustomValidator. The API server never calls it.
func (v *validator) ValidateDelete(context.Context, runtime.Object) (admission.Warnings, error) {
	return nil, nil
}

// certificates maintains the certificate of the webhook. The certificate is in a Secret, so that
// all replicas share it. certificates also configures the API server to trust it. The operator's
// manifests contain the Secret without content, so the operator needs no right to create Secrets.
type certificates struct {
	client    client.Client
	namespace string
	dir       string
	also      []string // further host names of the webhook
	log       *slog.Logger
}

// Start implements manager.Runnable.
func (c *certificates) Start(ctx context.Context) error {
	for {
		select {
		case <-time.After(certificateLook):
		case <-ctx.Done():
			return nil
		}
		if err := c.keep(ctx); err != nil {
			c.log.Warn("the webhook's certificate is not renewed", "error", err)
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because each
// replica has a webhook.
func (c *certificates) NeedLeaderElection() bool { return false }

// keep makes a new certificate if the current certificate ends soon or is missing. It writes the
// certificate to the folder that the webhook reads, and makes the API server trust it.
func (c *certificates) keep(ctx context.Context) error {
	for {
		var s corev1.Secret
		if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: Name + "-webhook"}, &s); err != nil {
			return fmt.Errorf("the Secret with the webhook's certificate (it is made by the operator's manifests): %w", err)
		}
		if good(s.Data, c.host()) {
			return c.use(ctx, s.Data)
		}
		crt, key, err := cert.GenerateSelfSignedCertKey(c.host(), c.addresses(), nil)
		if err != nil {
			return fmt.Errorf("making the webhook's certificate: %w", err)
		}
		s.Data = map[string][]byte{"tls.crt": crt, "tls.key": key}
		err = c.client.Update(ctx, &s)
		if apierrors.IsConflict(err) { // another replica has made a certificate at the same time
			continue
		}
		if err != nil {
			return fmt.Errorf("storing the webhook's certificate: %w", err)
		}
		c.log.Info("the webhook has a new certificate")
	}
}

func (c *certificates) addresses() (all []net.IP) {
	for _, host := range c.also {
		if ip := net.ParseIP(host); ip != nil {
			all = append(all, ip)
		}
	}
	return all
}

func (c *certificates) host() string { return Name + "." + c.namespace + ".svc" }

// good reports whether a certificate is for the host and stays valid for long enough.
func good(data map[string][]byte, host string) bool {
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return false
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	return err == nil && leaf.VerifyHostname(host) == nil && time.Until(leaf.NotAfter) > certificateLeft
}

func (c *certificates) use(ctx context.Context, data map[string][]byte) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"tls.key", "tls.crt"} {
		path := filepath.Join(c.dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data[name]) {
			continue
		}
		if err := os.WriteFile(path+".new", data[name], 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	var hooks admissionregistration.ValidatingWebhookConfiguration
	if err := c.client.Get(ctx, client.ObjectKey{Name: Name}, &hooks); err != nil {
		return fmt.Errorf("the ValidatingWebhookConfiguration %s (it is made by the operator's manifests): %w", Name, err)
	}
	told := false
	for i := range hooks.Webhooks {
		if w := &hooks.Webhooks[i]; !bytes.Equal(w.ClientConfig.CABundle, data["tls.crt"]) {
			w.ClientConfig.CABundle = data["tls.crt"]
			told = true
		}
	}
	if !told {
		return nil
	}
	if err := c.client.Update(ctx, &hooks); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("having the API server trust the webhook: %w", err)
	}
	return nil
}
