package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	cycloneDX     = "application/vnd.cyclonedx+json"
	inToto        = "application/vnd.in-toto+json"
	envelope      = "application/vnd.dsse.envelope.v1+json"
	simpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	// signatureKey is the annotation in which cosign expects a signature.
	signatureKey = "dev.cosignproject.cosign/signature"
	provenanceV1 = "https://slsa.dev/provenance/v1"
	// buildType names the meaning of the parameters in the provenance.
	buildType = "https://github.com/nova-platform/cluster-api-provider-nova/docs/clusterctl.md#a-release"
)

// describe returns the descriptor that others refer to an image with.
func describe(of partial.Describable) (v1.Descriptor, error) {
	found, err := partial.Descriptor(of)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("describing image: %w", err)
	}
	return v1.Descriptor{MediaType: found.MediaType, Size: found.Size, Digest: found.Digest}, nil
}

// artifact is data that refers to an image: its SBOM, its provenance, or its
// signature.
type artifact struct {
	kind, media string
	data        []byte
	annotations map[string]string
	subject     v1.Descriptor
}

// attach adds an artifact to the layout. Tools find it as a referrer of its
// subject. cosign also finds it by a tag that consists of the subject's digest
// and a suffix; without a suffix it has no tag.
func (r *releaser) attach(image, suffix string, a artifact) error {
	layer, err := r.blob(types.MediaType(a.media), a.data)
	if err != nil {
		return err
	}
	layer.Annotations = a.annotations
	manifest := v1.Manifest{ArtifactType: a.kind, Layers: []v1.Descriptor{layer}, Subject: &a.subject}
	if suffix == "" {
		_, err = r.add(func(digest v1.Hash) string { return image + "@" + digest.String() }, manifest)
		return err
	}
	// cosign reads its artifacts as images.
	manifest.Config.MediaType = types.OCIConfigJSON
	called := image + ":" + a.subject.Digest.Algorithm + "-" + a.subject.Digest.Hex + suffix
	_, err = r.add(func(v1.Hash) string { return called }, manifest)
	return err
}

// add adds a manifest to the layout, with an empty configuration.
func (r *releaser) add(called func(v1.Hash) string, manifest v1.Manifest) (v1.Descriptor, error) {
	media := manifest.Config.MediaType
	if media == "" {
		media = "application/vnd.oci.empty.v1+json"
	}
	var err error
	if manifest.Config, err = r.blob(media, []byte("{}")); err != nil {
		return v1.Descriptor{}, err
	}
	return r.append(called, manifest)
}

// append adds a manifest whose configuration is in the layout.
func (r *releaser) append(called func(v1.Hash) string, manifest v1.Manifest) (v1.Descriptor, error) {
	manifest.SchemaVersion, manifest.MediaType = 2, types.OCIManifestSchema1
	data, err := json.Marshal(manifest)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("writing manifest: %w", err)
	}
	entry, err := r.blob(types.OCIManifestSchema1, data)
	if err != nil {
		return v1.Descriptor{}, err
	}
	named := entry
	named.Annotations = map[string]string{refName: called(entry.Digest)}
	if err := r.layout.AppendDescriptor(named); err != nil {
		return v1.Descriptor{}, fmt.Errorf("writing index: %w", err)
	}
	return entry, nil
}

// blob adds data to the layout.
func (r *releaser) blob(media types.MediaType, data []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(data))
	if err == nil {
		err = r.layout.WriteBlob(digest, io.NopCloser(bytes.NewReader(data)))
	}
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("writing blob: %w", err)
	}
	return v1.Descriptor{MediaType: media, Size: size, Digest: digest}, nil
}

// signatures signs an index and its images as "cosign sign --recursive" does.
func (r *releaser) signatures(ctx context.Context, manager string, parts []v1.Descriptor) error {
	if r.signer == nil {
		return nil
	}
	for _, part := range parts {
		image, err := name.NewDigest(r.registry + "/" + manager + "@" + part.Digest.String())
		if err != nil {
			return fmt.Errorf("reading name of image: %w", err)
		}
		signed, err := payload.Cosign{Image: image}.MarshalJSON()
		if err != nil {
			return fmt.Errorf("writing payload of signature: %w", err)
		}
		signature, err := r.signer.Sign(ctx, signed)
		if err != nil {
			return fmt.Errorf("signing: %w", err)
		}
		if err := r.attach(manager, ".sig", artifact{
			kind: simpleSigning, media: simpleSigning, data: signed, subject: part,
			annotations: map[string]string{signatureKey: base64.StdEncoding.EncodeToString(signature)},
		}); err != nil {
			return fmt.Errorf("attaching signature: %w", err)
		}
	}
	return nil
}

// provenance attaches a statement to the index of a manager: the commit and the
// settings that its images were built from. If there is a key, the statement is
// signed as "cosign attest" does.
func (r *releaser) provenance(ctx context.Context, manager string, parts []v1.Descriptor, sboms []artifact) error {
	predicate, err := r.predicate(sboms)
	if err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: provenanceV1, Predicate: predicate}
	for _, part := range parts {
		statement.Subject = append(statement.Subject, resource(r.registry+"/"+manager, part.Digest))
	}
	if err := statement.Validate(); err != nil {
		return fmt.Errorf("checking statement: %w", err)
	}
	data, err := encode(statement)
	if err != nil {
		return err
	}
	a := artifact{
		kind: inToto, media: inToto, data: data, subject: parts[0],
		annotations: map[string]string{"predicateType": provenanceV1, "in-toto.io/predicate-type": provenanceV1},
	}
	if r.signer == nil {
		return r.attach(manager, "", a)
	}
	signers, err := dsse.NewEnvelopeSigner(r.signer)
	if err != nil {
		return fmt.Errorf("signing statement: %w", err)
	}
	signed, err := signers.SignPayload(ctx, "application/vnd.in-toto+json", data)
	if err != nil {
		return fmt.Errorf("signing statement: %w", err)
	}
	if a.data, err = json.Marshal(signed); err != nil {
		return fmt.Errorf("writing statement: %w", err)
	}
	a.media = envelope
	maps.Copy(a.annotations, map[string]string{signatureKey: ""})
	return r.attach(manager, ".att", a)
}

// predicate describes the build in the terms of SLSA. It contains no time and no
// machine, so that it is reproducible.
func (r *releaser) predicate(sboms []artifact) (*structpb.Struct, error) {
	parameters, err := structpb.NewStruct(map[string]any{"version": r.version, "registry": r.registry})
	if err != nil {
		return nil, fmt.Errorf("writing parameters: %w", err)
	}
	provenance := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{
				Uri:    "git+https://github.com/nova-platform/cluster-api-provider-nova@" + r.revision,
				Digest: map[string]string{"gitCommit": r.revision},
			}},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: buildType}},
	}
	for _, sbom := range sboms {
		digest, _, err := v1.SHA256(bytes.NewReader(sbom.data))
		if err != nil {
			return nil, fmt.Errorf("reading SBOM: %w", err)
		}
		provenance.RunDetails.Byproducts = append(provenance.RunDetails.Byproducts, resource("sbom", digest))
	}
	data, err := encode(provenance)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(data, predicate); err != nil {
		return nil, fmt.Errorf("writing predicate: %w", err)
	}
	return predicate, nil
}

func resource(called string, digest v1.Hash) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: called, Digest: map[string]string{digest.Algorithm: digest.Hex}}
}

// encode writes a message as JSON. protojson adds spaces at random, so that they
// have to be removed.
func encode(message proto.Message) ([]byte, error) {
	data, err := protojson.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing statement: %w", err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, fmt.Errorf("writing statement: %w", err)
	}
	return out.Bytes(), nil
}
